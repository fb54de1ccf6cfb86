"""Results are written to a temporary name and moved into place: a reader never sees half a file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unsmooth.errors import CheckpointError, OutputError


def check_writable(path: str | Path) -> None:
    """An error now, before hours of work, where `write_atomically` would fail in the end; leaves nothing behind."""
    path = Path(path)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir():
        raise OutputError(f"{path} is a folder: expected the name of a file to write")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = error.strerror or error
        raise OutputError(f"{path} cannot be written ({why} in {folder}): choose another place") from error


def write_atomically(path: str | Path, content: str | bytes) -> Path:
    """Write `content` to `path` in one step; an existing file stays whole until the new one is complete."""
    path = Path(path)
    try:
        return _write(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error}): choose another place") from error


def _write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
        os.chmod(draft, mode & 0o777)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return path


def read_json(path: str | Path, schema: str) -> dict[str, Any]:
    """The object in a JSON file that we wrote, or an error that says what is wrong with the file.

    `schema` is `name/version`; another version of the same name is refused by name.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"no file at {path}: expected a JSON file of kind {schema!r}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{path} is truncated or not JSON ({error}): expected a file of kind {schema!r}; measure again"
        ) from error
    got = found.get("schema") if isinstance(found, dict) else None
    if got != schema:
        raise CheckpointError(f"{path} is not ours or of another version: expected schema {schema!r}, got {got!r}")
    return dict(found)


@contextmanager
def undamaged(path: str | Path) -> Iterator[None]:
    """An error that names the file where what should stand in it does not."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{path} was cut or changed after it was written ({what}): measure again") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
