"""Files that we write (a reader never sees half of one) and JSON that we read (a damaged file is an error by name)."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unsmooth.errors import CheckpointError, OutputError, visible

#: JSON that we read at once. A measurement at all points of a large model, with 1,000 samples, has 20 MB.
MOST_BYTES = 1 << 30
ELSEWHERE = "choose another place"
IN_PYTHON = "load the model in Python yourself, and give it to unsmooth.measure(model, batches)"
NO_MODEL_FILE = (
    "expected a folder with a configuration, as save_pretrained or train wrote it. Weights alone go beside a model "
    f"(timm:NAME or hf:FOLDER, with --weights FILE). Of a whole model in one file (a pickle, GGUF, ONNX), {IN_PYTHON}"
)


def cache_folder() -> Path:
    """Where what can be made again is kept: UNSMOOTH_CACHE, or `unsmooth` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("UNSMOOTH_CACHE") or Path(home) / "unsmooth")


@contextmanager
def alone(path: Path, otherwise: str | None = None) -> Iterator[None]:
    """One process at a time goes through, the others wait: the first makes what all of them read.

    With `otherwise` they do not wait: OutputError in these words. `path` is an empty file that stays. A wait ends with
    the process that is waited for, however that ends. Where nothing can be written, nothing is made, and where there
    are no locks (Windows, some network drives) nobody waits.
    """
    try:
        import fcntl

        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except (ImportError, OSError):
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if otherwise is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(otherwise) from None
        except OSError:
            pass  # some network drives have no locks
        yield
    finally:
        os.close(handle)


def check_writable(path: str | Path, remedy: str = ELSEWHERE) -> None:
    """An error now, before hours of work, where `write_atomically` would fail in the end; leaves nothing behind."""
    with _refusing(path, remedy):
        if _streams(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        target = Path(os.path.realpath(path))
        with suppress(FileNotFoundError):
            target.lstat()  # refuses a name that is too long
        folder = next(parent for parent in target.parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass


def write_atomically(path: str | Path, content: str | bytes) -> Path:
    """Write `content` to `path` in one step; an existing file stays whole until the new one is complete.

    Of a link, the file that it leads to is written; a pipe, a terminal or /dev/null is written to.
    """
    # A file's name can hold bytes that are not UTF-8; \\udcff is what JSON has for them, and readable elsewhere.
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    with _refusing(path):
        if _streams(path):
            with open(path, "wb") as file:
                file.write(data)
        else:
            _write(Path(os.path.realpath(path)), data)
    return Path(path)


def write_result(path: str | Path, content: str | bytes) -> Path:
    """`write_atomically` for what took long to compute: if it fails at the end, the content is kept elsewhere."""
    try:
        return write_atomically(path, content)
    except OutputError as error:
        try:
            kept = write_atomically(Path(tempfile.mkdtemp(prefix="unsmooth-")) / "result", content)
        except OSError:
            raise error from None
        raise OutputError(f"{error}. What was computed is in {kept}") from error


@contextmanager
def _refusing(path: str | Path, remedy: str = ELSEWHERE) -> Iterator[None]:
    try:
        yield
    except OutputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        why = getattr(error, "strerror", None) or error
        raise OutputError(f"{path} cannot be written ({why}): {remedy}") from error


def _streams(path: str | Path) -> bool:
    """Whether this place takes bytes and keeps no file that could be replaced; OutputError for what takes none."""
    if path == "":
        raise OutputError("the name of the output is empty: expected the name of a file to write")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise OutputError(f"{path} is a folder: expected the name of a file to write")
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise OutputError(f"{path} is a {'disk' if stat.S_ISBLK(mode) else 'socket'}: expected the name of a file")
    return not stat.S_ISREG(mode) or os.fspath(path).startswith(("/dev/", "/proc/"))  # such as a redirected /dev/stdout


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".unsmooth-", suffix=".part")
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


def read_object(path: str | Path, expected: str) -> dict[str, Any]:
    """The object in a JSON file; CheckpointError, with what was `expected`, where there is none."""
    path = Path(path)
    try:
        if not path.is_file():
            raise CheckpointError(f"no file at {path}: expected {expected}")
        if path.stat().st_size > MOST_BYTES:
            raise CheckpointError(f"{path} has {path.stat().st_size:,} bytes: expected {expected} of 1 GiB at most")
        found = json.loads(path.read_text(encoding="utf-8"))
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error}): expected {expected}") from error
    except (ValueError, RecursionError) as error:  # ValueError: not JSON, not UTF-8, a number of 5,000 digits
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise CheckpointError(f"{path} is truncated or not JSON ({why}): expected {expected}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is not ours: expected {expected}, got a {type(found).__name__}")
    return {visible(key): _visible(value) for key, value in found.items()}


def _visible(value: Any) -> Any:
    """With no control characters in any text: what stands in a file is shown in terminals."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [_visible(item) for item in value]
    return {visible(key): _visible(item) for key, item in value.items()} if isinstance(value, dict) else value


def read_json(path: str | Path, *schemas: str) -> dict[str, Any]:
    """The object in a JSON file that we wrote, or an error that says what is wrong with the file.

    A schema is `name/version`; another version of the same name is refused by name.
    """
    schema = " or ".join(map(repr, schemas))
    found = read_object(path, f"a JSON file of kind {schema}")
    got = found.get("schema")
    if got not in schemas:
        raise CheckpointError(f"{path} is not ours or of another version: expected schema {schema}, got {got!r}")
    return found


@contextmanager
def validate_file(path: str | Path) -> Iterator[None]:
    """An error that names the file where what should stand in it does not."""
    try:
        yield
    except (
        ArithmeticError, AttributeError, CheckpointError, LookupError, RuntimeError, TypeError, ValueError
    ) as error:  # fmt: skip
        what = str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{path} was cut or changed after it was written ({what}): measure again") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
