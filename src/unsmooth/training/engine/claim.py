"""One process at a time trains into a folder; two would write their steps over each other's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from unsmooth.errors import CheckpointError


class ClaimedError(CheckpointError):
    """Another process trains into the folder."""


def refuse_claimed(folder: Path) -> None:
    """ClaimedError where another process trains into the folder now."""
    if folder.is_dir():
        with claimed(folder):
            pass


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the folder, or refuse. The claim ends with its process, however that ends, and leaves no file behind.

    Nor a folder: those made here go again where the run wrote nothing, for example because there is no data.
    """
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file: expected a folder for the run; choose another --out")
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        said = f"safetensors cannot open files in {folder}, a name that is not UTF-8: choose another --out"
        raise CheckpointError(said) from None
    try:
        import fcntl
    except ImportError:  # Windows: nothing of the kind for folders
        yield
        return
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(f"cannot write {folder} ({error.strerror or error}): choose another --out") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClaimedError(
                f"another process is training into {folder}: expected a folder that nobody writes to; "
                "wait for it to end, or choose another --out"
            ) from None
        except OSError:
            pass  # some network drives have no locks
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty
            for place in made:
                place.rmdir()
        os.close(handle)
