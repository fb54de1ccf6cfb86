"""Records of a source, one by one: PIL images or strings, without reading everything at once."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

from unsmooth.errors import DataError, MissingExtraError
from unsmooth.sources.images import to_rgb
from unsmooth.sources.paths import RECORDS, TEXT_COLUMNS, Source

#: What one row group of a parquet file may unpack to.
MOST_UNPACKED = 8 << 30


def images(source: Source) -> Iterator[Any]:
    """Every image of the source, as RGB PIL images."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError.needed("pillow", "vision", "reading images") from error

    def decode(file: Any, name: str) -> Any:
        try:
            with Image.open(file) as image:
                return to_rgb(image)
        except UnidentifiedImageError as error:
            raise DataError(f"{name} is not a readable image: remove it or repair it") from error
        except Exception as error:  # Pillow's readers of formats let errors of many kinds through
            raise DataError(f"{name} is not a readable image ({error}): remove it or repair it") from error

    for path in source.files:
        if source.column is None:
            yield decode(path, str(path))
        else:
            for row, value in enumerate(_column(path, source.column)):
                blob = value["bytes"] if isinstance(value, dict) else value
                if blob is None:
                    raise DataError(f"{path}, row {row}: the image has no bytes (only a path?): embed the images")
                yield decode(io.BytesIO(blob), f"{path}, row {row}")


def texts(source: Source) -> Iterator[str]:
    """Every non-empty text of the source: a parquet or jsonl record, or a whole text file."""
    for path in source.files:
        if path.suffix.lower() == ".parquet":
            assert source.column is not None
            yield from (value for value in _column(path, source.column) if value and value.strip())
        elif path.suffix.lower() in RECORDS:
            yield from _json_texts(path, source.column)
        else:
            content = _plain_text(path)
            if content.strip():
                yield content


def _plain_text(path: Path) -> str:
    """UTF-8, or UTF-16 that says so; whatever else would be measured as noise."""
    try:
        with path.open("rb") as file:
            wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        content = path.read_text(encoding="utf-16" if wide else "utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}): mend it or leave it out") from error
    except UnicodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error}): convert it (iconv -t utf-8), or remove it") from error
    if "\0" in content:
        raise DataError(f"{path} holds zero bytes: expected text in UTF-8; convert it (iconv -t utf-8), or remove it")
    return content


def _column(path: Path, column: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            rows = _rows_at_once(file.metadata.row_group(group), path)
            for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=[column]):
                if batch.num_columns == 0:
                    raise DataError(f"{path} has no column {column!r}, as others of these files do: expected one kind")
                yield from batch.column(0).to_pylist()
    except (pa.ArrowException, OSError, KeyError, IndexError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}): expected parquet with a column {column!r}") from error


def _rows_at_once(group: Any, path: Path) -> int:
    """As many rows as fit 256 MB, 256 at most. DataError where a group of rows unpacks to more than files hold."""
    size = group.total_byte_size  # of all columns: pyarrow aborts the process on a chunk whose statistics are damaged
    if size > MOST_UNPACKED:
        raise DataError(
            f"{path}: a group of {group.num_rows} rows unpacks to {size:,} bytes, more than the limit of "
            f"{MOST_UNPACKED:,}: write it with smaller row groups"
        )
    return max(1, min(256, (256 << 20) * group.num_rows // max(size, 1)))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            yield from enumerate(file, 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}): mend it or leave it out") from error


def _json_texts(path: Path, column: str | None) -> Iterator[str]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            text = _text_of(json.loads(line.decode("utf-8-sig")), column, f"{path}, line {number}")
            text.encode()  # refuses half a character, which JSON can escape (a lone surrogate)
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            raise DataError(
                f"{path}, line {number}: not JSON in UTF-8 ({why}); expected one record per line"
            ) from error
        if text.strip():
            yield text


def _text_of(record: Any, column: str | None, where: str) -> str:
    """The first column that holds text; "" where there is one, but nothing in it."""
    if isinstance(record, str):
        return record
    if isinstance(record, list):
        raise DataError(f"{where}: a list of {len(record)}: expected one record per line (jq -c '.[]' makes them)")
    names = [column] if column else TEXT_COLUMNS
    fields = record if isinstance(record, dict) else {}
    for name in names:
        value = fields.get(name)
        if isinstance(value, dict):  # MultiRC keeps its passage one level down
            value = value.get("text")
        if isinstance(value, str) and value.strip():
            return value
    found = {name: fields[name] for name in names if name in fields}
    if any(value is None or (isinstance(value, str) and not value.strip()) for value in found.values()):
        return ""
    for name, value in found.items():
        raise DataError(f"{where}: expected text in {name!r}, got {shorten(json.dumps(value), 60)}")
    raise DataError(
        f"{where}: no text in {list(names)}; the record has {sorted(fields)}; name one with --column, where the "
        f"command has it, or rename it to {names[0]}"
    )
