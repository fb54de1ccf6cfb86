"""One process at a time trains into a folder; two would write their steps over each other's."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from unsmooth.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows: nothing of the kind for folders
    LOCKS = False
else:
    LOCKS = True


class ClaimedError(CheckpointError):
    """Another process trains into the folder."""


def is_claimed(folder: Path) -> bool:
    """Whether another process trains into the folder now."""
    if not LOCKS or not folder.is_dir():
        return False
    handle = os.open(folder, os.O_RDONLY)
    try:
        return not _locked(handle, fcntl.LOCK_SH, patience=())  # shared: two who ask do not see each other
    finally:
        os.close(handle)


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
    if not LOCKS:
        yield
        return
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(f"cannot write {folder} ({error.strerror or error}): choose another --out") from error
    try:
        if not _locked(handle, fcntl.LOCK_EX, patience=(0.02, 0.05, 0.1)):  # who only asks lets go at once
            raise ClaimedError(
                f"another process is training into {folder}: expected a folder that nobody writes to; "
                "wait for it to end, or choose another --out"
            )
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty
            for place in made:
                place.rmdir()
        os.close(handle)


def _locked(handle: int, kind: int, patience: tuple[float, ...]) -> bool:
    """Whether the lock could be had, after so many seconds of waiting; some network drives have none to refuse."""
    for seconds in (*patience, 0.0):
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(seconds)
        except OSError:
            return True
        else:
            return True
    return False
