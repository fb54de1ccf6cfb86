"""What is at a path: which files, and do they hold images or text?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unsmooth.errors import DataError, MissingExtraError

Kind = Literal["images", "text"]

IMAGES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"})
PLAIN = frozenset({".txt", ".text", ".md"})  # a whole file is one text
RECORDS = frozenset({".jsonl", ".json"})
TEXTS = PLAIN | RECORDS
EXPECTED = "a folder of images, parquet files (image or text column), .txt or .jsonl files"
# Where records keep their text, most telling first.
TEXT_COLUMNS = ("text", "content", "passage", "document", "sentence", "sentence1", "premise", "question")
IMAGE_COLUMNS = ("image", "img", "png", "jpg", "pixel_values")


@dataclass(frozen=True)
class Source:
    """Files of one kind; `column` is the parquet or jsonl field that holds the inputs."""

    kind: Kind
    files: tuple[Path, ...]
    column: str | None = None

    def count(self) -> int | None:
        """How many records there are, where that is cheap to know."""
        if self.files[0].suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            return sum(_parquet(pq.read_metadata, file).num_rows for file in self.files)
        return len(self.files) if self.kind == "images" else None


def find_source(path: str | Path, column: str | None = None) -> Source:
    """Look at a file or folder; parquet is looked into for an image or text column."""
    try:
        if not str(path):  # which pathlib takes for the folder that one is in
            raise DataError(f"the name of the data is empty: expected {EXPECTED}")
        path = Path(path).expanduser()
        if not path.exists():
            raise DataError(f"no data at {path}: expected {EXPECTED}")
        files = sorted(_inside(path)) if path.is_dir() else [path]
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, with a zero byte, of an unknown ~user
        where = getattr(error, "filename", None) or path
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{where} cannot be read ({why}): mend it or leave it out; expected {EXPECTED}") from error
    parquet = [p for p in files if p.suffix.lower() == ".parquet"]
    if parquet:
        return _parquet_source(parquet, column)
    images = [p for p in files if p.suffix.lower() in IMAGES]
    texts = [p for p in files if p.suffix.lower() in TEXTS]
    if images:
        return Source("images", tuple(images))
    if texts:
        return Source("text", tuple(texts), column)
    found = sorted({p.suffix or p.name for p in files})[:5]
    raise DataError(f"nothing to read at {path}: expected {EXPECTED}; found {found or 'an empty folder'}")


def _inside(folder: Path) -> Iterator[Path]:
    """Every file below a folder that is not hidden, behind links too, but each folder once: links may lead back."""
    seen: set[Path] = set()

    def refuse(error: OSError) -> None:  # os.walk would go on without this folder
        raise error

    for place, folders, files in os.walk(folder, followlinks=True, onerror=refuse):
        real = Path(place).resolve()
        folders[:] = sorted(name for name in folders if not name.startswith(".") and real not in seen)
        for file in (Path(place, name) for name in files if not name.startswith(".") and real not in seen):
            if file.suffix.lower() in IMAGES | TEXTS and not file.exists():
                raise DataError(f"{file} is a link to {file.readlink()}, which is not there: fetch it, or remove it")
            yield file
        seen.add(real)


def _parquet_source(files: list[Path], column: str | None) -> Source:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError.needed("pyarrow", "data", "reading parquet") from error
    schema = _parquet(pq.read_schema, files[0])
    kinds = _kinds(pa, schema)
    if column is not None and column not in kinds:
        raise DataError(f"no image or text column {column!r} in {files[0]}: expected one of {sorted(kinds)}")
    order = [column] if column else [*IMAGE_COLUMNS, *TEXT_COLUMNS, *kinds]
    chosen = next((name for name in order if name in kinds), None)
    if chosen is None:
        raise DataError(f"{files[0]} has no image or text column: its columns are {schema.names}")
    for other in files[1:]:
        there = _parquet(pq.read_schema, other)
        if _kinds(pa, there).get(chosen) != kinds[chosen]:
            raise DataError(
                f"{other} has no column {chosen!r} of {kinds[chosen]}, as {files[0]} has: expected files of one kind, "
                f"its columns are {there.names}"
            )
    return Source(kinds[chosen], tuple(files), chosen)


def _parquet(read: Callable[[Path], Any], file: Path) -> Any:
    """What pyarrow reads of a file's footer."""
    try:
        return read(file)
    except Exception as error:  # of pyarrow's own classes, or any that its bindings let through
        raise DataError(f"{file} is truncated or not parquet ({error}): download or write it again") from error


def _kinds(pa: Any, schema: Any) -> dict[str, Kind]:
    """The columns that hold images or text."""
    kinds: dict[str, Kind] = {}
    for field in schema:
        values = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if values in (pa.string(), pa.large_string(), pa.string_view()):
            kinds[field.name] = "text"
        elif values in (pa.binary(), pa.large_binary(), pa.binary_view()) or (
            pa.types.is_struct(values) and values.get_field_index("bytes") >= 0
        ):
            kinds[field.name] = "images"
    return kinds
