"""Files of every kind become batches; what cannot be read is named."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sources.opened import IMAGES, TEXT, Letters, Loaded, batches

import unsmooth
from unsmooth.errors import DataError
from unsmooth.sources import LoadedModel, open_data

pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")


def png(colour: int, size: tuple[int, int] = (8, 8)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (colour, colour, colour)).save(file, "PNG")
    return file.getvalue()


def test_a_folder_of_images_is_scaled_cropped_and_normalised(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "white.png").write_bytes(png(255, (20, 10)))
    (tmp_path / "black.png").write_bytes(png(0, (8, 8)))
    (tmp_path / "notes.csv").write_text("x")
    (found,) = batches(tmp_path, IMAGES)
    assert found.shape == (2, 3, 8, 8)
    assert found[0].unique().tolist() == [1.0]
    assert found[1].unique().tolist() == [-1.0]


def test_suffixes_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "X.PNG").write_bytes(png(0))
    assert len(batches(tmp_path, IMAGES)[0]) == 1
    (tmp_path / "X.JSONL").write_text('{"text": "abc"}\n')
    assert len(batches(tmp_path / "X.JSONL", TEXT, whole_records=True)[0]["input_ids"]) == 1
    pq.write_table(pa.table({"text": ["abc", "d"]}), tmp_path / "X.PARQUET")
    assert len(batches(tmp_path, TEXT, whole_records=True)[0]["input_ids"]) == 2


@pytest.mark.parametrize("column", ["image", "img"])
def test_parquet_with_images(tmp_path: Path, column: str) -> None:
    rows = [{"bytes": png(c), "path": None} for c in (0, 255, 255)]
    pq.write_table(pa.table({"label": [1, 2, 3], column: rows}), tmp_path / "x.parquet")
    found = batches(tmp_path, IMAGES, batch_size=2)
    assert [len(b) for b in found] == [2, 1]
    assert open_data(tmp_path, IMAGES, samples=2).samples == 2  # type: ignore[arg-type]
    assert open_data(tmp_path, IMAGES).samples == 3  # type: ignore[arg-type]


def test_parquet_with_text_prefers_the_text_over_the_title(tmp_path: Path) -> None:
    pq.write_table(pa.table({"title": ["zzzz"], "text": ["abcdef"]}), tmp_path / "x.parquet")
    (found,) = batches(tmp_path, TEXT, max_length=5)
    assert found["input_ids"].tolist() == [[0, *map(ord, "abc"), 1], [0, *map(ord, "def"), 1]]
    assert found["special_tokens_mask"].tolist() == [[1, 0, 0, 0, 1]] * 2
    (title,) = batches(tmp_path, TEXT, max_length=4, column="title")
    assert title["input_ids"][0].tolist() == [0, ord("z"), ord("z"), 1]


def test_windows_hold_no_padding_and_join_short_texts(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in ("ab", "c", "defg", "h")))
    (found,) = batches(tmp_path, TEXT, max_length=5)
    assert found["attention_mask"].all()
    assert (
        "".join(chr(i) for i in found["input_ids"].flatten() if i > 1) == "abcdef"
    )  # the last two letters fill no window


def test_whole_records_are_padded(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"passage": {"text": "abc"}}\n\n{"premise": "d"}\n')
    (found,) = batches(tmp_path, TEXT, max_length=6, whole_records=True)
    assert found["input_ids"].tolist() == [[0, 97, 98, 99, 1], [0, 100, 1, 9, 9]]
    assert found["attention_mask"].tolist() == [[1] * 5, [1, 1, 1, 0, 0]]
    assert found["special_tokens_mask"].tolist() == [[1, 0, 0, 0, 1], [1, 0, 1, 1, 1]]


def test_random_inputs_are_the_same_each_time() -> None:
    for loaded in (IMAGES, TEXT):
        first, second = (batches("random", loaded, samples=3, batch_size=2) for _ in range(2))
        for a, b in zip(first, second, strict=True):
            a, b = (x["input_ids"] if isinstance(x, dict) else x for x in (a, b))
            assert torch.equal(a, b)
        assert len(first) == 2
        (one,) = batches("random", loaded, batch_size=2)  # a batch, unless more are asked for
        assert len(one["input_ids"] if isinstance(one, dict) else one) == 2


def test_random_ids_hold_no_padding_without_an_embedding() -> None:
    """A token whose embedding is zero has no direction, so that nothing could be measured."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = transformers.LlamaModel(transformers.LlamaConfig(vocab_size=5, pad_token_id=4, **sizes))
    (found,) = batches("random", LoadedModel(model, "x", "text"), samples=4, batch_size=4)
    assert sorted(set(found["input_ids"].flatten().tolist())) == [0, 1, 2, 3]
    unsmooth.measure(model.eval(), [found])
    torch.nn.init.ones_(
        model.embed_tokens.weight
    )  # where it is a token like others, results of before stay what they are
    (found,) = batches("random", LoadedModel(model, "x", "text"), samples=4, batch_size=4)
    assert 4 in found["input_ids"]


def test_bundled_pictures_open() -> None:
    assert sum(len(b) for b in batches("bundled", IMAGES)) == 8


@pytest.mark.parametrize(
    ("name", "content", "loaded", "message"),
    [
        ("x.png", b"not an image", IMAGES, r"x\.png is not a readable image"),
        ("x.parquet", b"PAR1 and no more", IMAGES, r"x\.parquet is truncated or not parquet"),
        ("x.jsonl", b'{"a": 1', TEXT, "line 1: not JSON"),
        ("x.jsonl", b'{"label": 3}', TEXT, r"no text in .*the record has \['label'\].*--column"),
        ("x.jsonl", b'{"text": 5}', TEXT, "line 1: expected text in 'text', got 5"),
        ("x.jsonl", b'{"text": 0}', TEXT, "line 1: expected text in 'text', got 0"),  # was taken for no text
        ("x.jsonl", b'{"text": ["a", "b"], "id": 3}', TEXT, r"""expected text in 'text', got \["a", "b"\]"""),
        ("x.csv", b"1,2", TEXT, r"expected a folder of images.*found \['\.csv'\]"),
        ("x.jsonl", b'{"text": "caf\xe9"}', TEXT, "line 1: not JSON in UTF-8"),
        ("x.txt", b"   ", TEXT, r"shorter than one window.*--whole-records"),
        ("x.txt", b"abc", TEXT, "one window of 128 tokens.*max_length"),
        ("x.txt", b"abc", IMAGES, "holds text, but test takes images"),
        ("x.txt", b"abc", Loaded("text"), "has no tokenizer"),
        ("x.txt", "Größe".encode("latin-1"), TEXT, r"x\.txt is not text in UTF-8.*byte 0xf6.*iconv"),
        ("x.txt", "abc".encode("utf-16-le"), TEXT, r"x\.txt holds zero bytes: expected text in UTF-8"),
        ("x.json", b'[{"text": "abc"}, {"text": "d"}]', TEXT, "line 1: a list of 2: expected one record per line"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, loaded: Loaded, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        batches(tmp_path, loaded)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_mark_of_the_encoding_is_no_letter(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.txt").write_bytes("aß\r\nb".encode(encoding))
    (found,) = batches(tmp_path, TEXT, whole_records=True)
    assert found["input_ids"].tolist() == [[0, ord("a"), ord("ß"), ord("b"), 1]]


def test_links_are_followed_each_folder_once_and_hidden_ones_are_left_out(tmp_path: Path) -> None:
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    for folder in (elsewhere, here / ".hidden"):
        folder.mkdir(parents=True)
        (folder / "x.png").write_bytes(png(0))
    (here / "class").symlink_to(elsewhere)
    (here / "loop").symlink_to(here)
    (here / "y.png").symlink_to(elsewhere / "x.png")
    assert sum(len(batch) for batch in batches(here, IMAGES)) == 2


def test_a_link_to_nothing_is_not_left_out_in_silence(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(0))
    (tmp_path / "b.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(DataError, match=r"b\.png is a link to .*gone\.png, which is not there"):
        batches(tmp_path, IMAGES)


def test_parquet_columns_as_pandas_and_polars_write_them(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array(["abc", "abc"]).dictionary_encode()}), tmp_path / "x.parquet")
    assert len(batches(tmp_path / "x.parquet", TEXT, whole_records=True)[0]["input_ids"]) == 2
    pq.write_table(pa.table({"image": pa.array([png(0)], pa.large_binary())}), tmp_path / "y.parquet")
    assert len(batches(tmp_path / "y.parquet", IMAGES)[0]) == 1
    try:
        pq.write_table(pa.table({"text": pa.array(["abc"], pa.string_view())}), tmp_path / "z.parquet")
        pq.write_table(pa.table({"image": pa.array([png(0)], pa.binary_view())}), tmp_path / "w.parquet")
    except pa.ArrowNotImplementedError:  # of older versions of pyarrow
        return
    assert len(batches(tmp_path / "z.parquet", TEXT, whole_records=True)[0]["input_ids"]) == 1
    assert len(batches(tmp_path / "w.parquet", IMAGES)[0]) == 1


def test_records_without_text_in_their_column_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": null}\n{"text": " "}\n" "\n{"text": "abc"}\n')
    assert len(batches(tmp_path, TEXT, whole_records=True)[0]["input_ids"]) == 1
    pq.write_table(pa.table({"text": [None, " ", "", "abc"]}), tmp_path / "x.parquet")
    assert len(batches(tmp_path / "x.parquet", TEXT, whole_records=True)[0]["input_ids"]) == 1


def test_records_are_cut_to_the_length_and_windows_need_room(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("abcdef")
    assert batches(tmp_path, TEXT, max_length=4, whole_records=True)[0]["input_ids"].tolist() == [[0, 97, 98, 1]]
    assert len(batches(tmp_path, TEXT, max_length=3)[0]["input_ids"]) == 6
    with pytest.raises(DataError, match="windows of 2 tokens leave no room beside 2 special ones"):
        batches(tmp_path, TEXT, max_length=2)


def test_long_texts_are_not_cut_inside_a_line(tmp_path: Path) -> None:
    class Lines(Letters):
        def __call__(self, text: str, **_: Any) -> dict[str, Any]:
            return {"input_ids": [len(line) for line in text.splitlines()]}

    (tmp_path / "x.txt").write_text(7000 * "sixsix\n")
    found = batches(tmp_path, Loaded("text", tokenizer=Lines()), max_length=7000)
    assert found[0]["input_ids"].tolist() == [[6] * 7000]


@pytest.mark.parametrize("modality", ["audio", "video"])
def test_audio_and_video_have_no_loader_and_the_message_says_so(tmp_path: Path, modality: str) -> None:
    (tmp_path / "x.txt").write_text("abc")
    with pytest.raises(
        DataError, match=f"takes {modality}: no loader for it; in Python, give unsmooth.measure batches"
    ):
        batches(tmp_path, Loaded(modality))


def test_no_data_at_the_path() -> None:
    with pytest.raises(DataError, match="no data at nowhere: expected a folder of images"):
        batches("nowhere", IMAGES)


def test_an_unknown_column_lists_the_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"title": ["a"], "text": ["b"]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"no image or text column 'body'.*\['text', 'title'\]"):
        batches(tmp_path, TEXT, column="body")


def test_a_table_of_numbers_only_lists_its_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"label": [1, 2], "score": [0.5, 0.1]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"no image or text column: its columns are \['label', 'score'\]"):
        batches(tmp_path, IMAGES)


@pytest.mark.shared
def test_real_data_opens(shared_data: Path) -> None:
    assert batches(shared_data / "imagenet_val", IMAGES, samples=3)[0].shape == (3, 3, 8, 8)
    assert open_data(shared_data / "cifar100", IMAGES).samples == 60_000  # type: ignore[arg-type]
    for folder in (
        "wikitext2",
        "books",
        "wikipedia",
        "superglue/BoolQ",
        "superglue/MultiRC",
        "superglue/WiC",
    ):
        (found,) = batches(shared_data / folder, TEXT, samples=4, max_length=64)
        assert found["input_ids"].shape == (4, 64), folder
