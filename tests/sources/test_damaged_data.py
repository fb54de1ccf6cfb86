"""Data that is damaged, of several kinds, forbidden or a bomb: an error with its name, never half of it in silence."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from unsmooth.errors import DataError
from unsmooth.sources import records
from unsmooth.sources.paths import find_source
from unsmooth.sources.records import images, texts

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def read(path: Path, column: str | None = None) -> list[Any]:
    source = find_source(path, column)
    return list((images if source.kind == "images" else texts)(source))


def table(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_forbidden_folder_is_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.txt").write_text("one")
    (tmp_path / "b").mkdir(mode=0)
    with pytest.raises(DataError, match=r"b cannot be read \(Permission denied\)"):
        read(tmp_path)


def test_a_folder_that_cannot_be_listed_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a user to whom nothing is forbidden."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.txt").write_text("one")
    (tmp_path / "b").mkdir()
    listed = os.scandir

    def scandir(place: Any) -> Any:
        if Path(place).name == "b":
            raise PermissionError(13, "Permission denied", str(place))
        return listed(place)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataError, match=r"b cannot be read \(Permission denied\): mend it or leave it out"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_forbidden_file_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_text('"one"\n')
    monkeypatch.setattr(Path, "open", lambda self, *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(DataError, match=rf"{name} cannot be read \(Permission denied\)"):
        read(tmp_path)


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b", "~nobody-of-that-name/x"])
def test_a_path_that_no_file_can_have_is_refused(path: str) -> None:
    with pytest.raises(DataError, match="cannot be read|no data at"):
        find_source(path)


def test_an_empty_name_is_not_the_folder_that_one_is_in() -> None:
    with pytest.raises(DataError, match="the name of the data is empty"):
        find_source("")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"text": ' * 100_000, "nested too deeply"),
        ('{"text": "\\ud800"}', "surrogates not allowed"),
        ('{"text": ' + "9" * 5000 + "}", "not JSON in UTF-8"),
        ("\udcff", "not JSON in UTF-8"),
    ],
)
def test_a_record_that_is_no_text_is_named_by_its_line(line: str, message: str, tmp_path: Path) -> None:
    content = f'"good"\n{line}\n'.encode("utf-8", "surrogateescape")
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: .*{message}"):
        read(tmp_path)


@pytest.mark.parametrize("other", [{"name": ["x"]}, {"text": [1, 2]}, {"text": [b"x"]}])
def test_parquet_files_with_other_columns_are_refused_before_the_work(other: dict[str, Any], tmp_path: Path) -> None:
    table(tmp_path / "a.parquet", text=["one"])
    table(tmp_path / "b.parquet", **other)
    with pytest.raises(DataError, match=r"b\.parquet has no column 'text' of text, as .*a\.parquet has"):
        find_source(tmp_path)


def test_one_damaged_parquet_file_of_several_is_named(tmp_path: Path) -> None:
    table(tmp_path / "a.parquet", text=["one"])
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(DataError, match=r"b\.parquet is truncated or not parquet"):
        find_source(tmp_path)


def test_parquet_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path / "a.parquet", text=["a" * 1_000_000] * 3)
    assert path.stat().st_size < 100_000
    assert [len(text) for text in read(path)] == [1_000_000] * 3
    monkeypatch.setattr(records, "MOST_UNPACKED", 100_000)
    with pytest.raises(DataError, match=r"a group of 3 rows unpacks to [\d,]+ bytes, more than the limit"):
        read(path)


def test_large_rows_are_not_unpacked_by_hundreds(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table(path, text=[chr(97 + i % 26) * 4_000_000 for i in range(40)])
    group = pq.ParquetFile(path).metadata.row_group(0)
    rows = records._rows_at_once(group, path)
    assert 1 <= rows < 256


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP", "PPM"])
def test_no_damage_to_an_image_gives_another_error(kind: str, tmp_path: Path) -> None:
    from PIL import Image

    draw = random.Random(0)
    path = tmp_path / f"a.{kind.lower()}"
    Image.effect_mandelbrot((16, 12), (-2, -1, 1, 1), 20).convert("RGB").save(path, kind)
    good = path.read_bytes()
    for _ in range(150):
        bad = bytearray(good)
        for _ in range(draw.choice((1, 3, 10))):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        path.write_bytes(bad[: draw.choice((len(bad), draw.randrange(len(bad))))])
        try:
            read(path)
        except DataError as error:
            assert path.name in str(error)  # noqa: PT017


def test_a_record_of_json_may_be_text_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps("é") + "\n")
    assert read(tmp_path) == ["é"]


def test_a_damaged_chunk_of_parquet_does_not_end_the_process(tmp_path: Path) -> None:
    """pyarrow aborts where one looks at a column chunk with damaged statistics: only the group is looked at."""
    from types import SimpleNamespace

    assert records._rows_at_once(SimpleNamespace(total_byte_size=1 << 30, num_rows=1000), tmp_path) == 250
