"""From texts to tokens: splits, the cache, and data that cannot be used."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from training.tasks.text.conftest import corpus, document

from unsmooth.errors import CheckpointError, DataError, OutputError
from unsmooth.training.tasks.text import corpus as module
from unsmooth.training.tasks.text.corpus import Texts, _is_validation, open_corpus
from unsmooth.training.tasks.text.tokenizer import tokenizer_hash


def test_tokens_are_those_of_the_documents_with_separators(folder: Path) -> None:
    found = corpus(folder)
    tokenizer = found.tokenizer
    expected: list[int] = []
    for i in range(400):
        if i % 200 != 199:
            expected += [*tokenizer(document(i), add_special_tokens=False)["input_ids"], tokenizer.sep_token_id]
    got = found.train.rows(torch.arange(len(found.train))).flatten().tolist()
    assert got == expected[: len(got)]
    assert len(expected) - len(got) < 16
    assert tokenizer.vocab_size == 90
    held = found.validation.rows(torch.arange(len(found.validation))).flatten().tolist()
    assert tokenizer.decode(held).startswith(document(199)[:30])


def test_a_second_call_reads_the_cache_and_another_setting_does_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = corpus(folder)
    with monkeypatch.context() as patch:
        patch.setattr("unsmooth.training.tasks.text.corpus.write_shards", lambda *_, **__: pytest.fail("made again"))
        assert corpus(folder).train.key == first.train.key
    assert corpus(folder, length=8).train.folder != first.train.folder
    with (folder / "texts" / "a.jsonl").open("a") as file:
        file.write("\n" + json.dumps({"text": document(3)}))
    assert corpus(folder).train.key != first.train.key


def test_records_that_were_read_as_plain_text_are_not_taken_for_the_records(folder: Path) -> None:
    """Their file was called .txt by mistake; under its right name it had the tokens of quotes and braces."""
    file = folder / "texts" / "a.jsonl"
    right = Texts.at([file]).key()
    wrong = Texts.at([file.rename(folder / "texts" / "a.txt")]).key()
    assert wrong != right
    assert Texts.at([(folder / "texts" / "a.txt").rename(folder / "texts" / "b.md")]).key() == wrong
    assert Texts.at([(folder / "texts" / "b.md").rename(folder / "texts" / "b.jsonl")]).key() == right


def test_runs_on_records_know_their_data_again(tmp_path: Path) -> None:
    """A key is part of a run's checkpoints: with another one, an interrupted run is taken for one on other data."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "it is red"}')
    assert Texts.at([file]).key() == "15954ec257e6ec0a"


def test_of_two_that_open_the_same_texts_at_once_one_makes_the_tokens(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs side by side on one machine: the second waits, and reads what the first made."""
    both = threading.Barrier(2)
    real, made = module.train_tokenizer, []

    def slow(*given: object) -> object:
        made.append(given)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # time for the other one to come in
        return real(*given)

    monkeypatch.setattr(module, "train_tokenizer", slow)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(corpus, [folder, folder])
    assert len(made) == 1
    assert first.train.key == second.train.key


def test_an_empty_file_beside_others_is_named(folder: Path) -> None:
    (folder / "texts" / "b.jsonl").touch()
    with pytest.raises(DataError, match=r"b\.jsonl is empty"):
        corpus(folder)


def test_a_cache_that_cannot_be_made_is_refused_before_the_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "cache").write_text("a file")
    monkeypatch.setattr(module, "train_tokenizer", lambda *_: pytest.fail("worked for nothing"))
    with pytest.raises(OutputError, match=r"tokenizer\.json cannot be written .*: set UNSMOOTH_CACHE to a folder"):
        corpus(folder)


def test_a_cache_that_cannot_be_written_is_read(folder: Path) -> None:
    made = corpus(folder)
    for path in (folder / "cache").glob("*.lock"):
        path.unlink()
        path.mkdir()  # no file can be made of that name
    assert corpus(folder).train.key == made.train.key


@pytest.mark.parametrize(("name", "held_out"), [
    ("validation-00000-of-00001.parquet", True), ("valid.txt", True), ("Val_1.jsonl", True), ("val2.txt", True),
    ("values.txt", False), ("valley.jsonl", False), ("validity.txt", False), ("train.txt", False),
])  # fmt: skip
def test_a_file_is_held_out_by_its_name_and_not_by_how_it_begins(name: str, held_out: bool) -> None:
    assert _is_validation(Path(name)) == held_out


def test_files_called_validation_are_held_out(folder: Path) -> None:
    (folder / "texts" / "validation.jsonl").write_text(json.dumps({"text": document(1_000, 200)}))
    found = corpus(folder)
    held = found.validation.rows(torch.arange(len(found.validation))).flatten().tolist()
    assert found.tokenizer.decode(held).startswith(document(1_000, 200)[:30])
    assert list(Texts.at([folder / "texts"]).read("train")) == [document(i) for i in range(400)]


def test_texts_that_are_all_held_out_are_named(folder: Path) -> None:
    (folder / "texts" / "a.jsonl").rename(folder / "texts" / "valid.jsonl")
    with pytest.raises(DataError, match=r"every file at .*texts is held out, for its name begins with val"):
        corpus(folder)


def test_a_folder_of_the_cache_is_data_itself(folder: Path) -> None:
    made = corpus(folder)
    place = made.train.folder.parent
    found = open_corpus([place], folder / "unused", length=16, vocabulary=5)
    assert (found.train.key, len(found.validation)) == (made.train.key, len(made.validation))
    assert tokenizer_hash(found.tokenizer) == tokenizer_hash(made.tokenizer)
    assert not (folder / "unused").exists()
    with pytest.raises(DataError, match="sequences of 16 tokens, not of 8: give --set length=16"):
        open_corpus([place], folder, length=8, vocabulary=5)
    content = (place / "tokenizer.json").read_text()
    (place / "tokenizer.json").write_text(content.replace('"lowercase": true', '"lowercase": false'))
    with pytest.raises(CheckpointError, match="another tokenizer made"):
        open_corpus([place], folder, length=16, vocabulary=5)


def test_tokens_of_something_else_under_the_name_are_refused(folder: Path) -> None:
    about = corpus(folder).train.folder / "tokens.json"
    about.write_text(about.read_text().replace('"key": "', '"key": "x'))
    with pytest.raises(CheckpointError, match="holds tokens of something else"):
        corpus(folder)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "a.jsonl is empty"),
        (b"\n", "hold no words"),
        (b'{"text": "\xff\xfe"}', "not JSON in UTF-8"),
        (b'{"text": "a few words"}', "no sequence|only .* different pieces"),
        (
            json.dumps({"text": "".join(map(chr, range(0x400, 0x530)))}).encode(),
            r"they alone are \d+ pieces, more than the vocabulary of 90",
        ),
    ],
)
def test_text_that_cannot_be_used_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=why):
        corpus(tmp_path)
    assert not list(tmp_path.glob("cache/*/train"))


def test_images_are_no_text_and_the_hub_comes_alone(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data was named"):
        Texts.at([])
    for data in (["hub:pile", tmp_path], [tmp_path, "hub:pile"], ["hub:"]):
        with pytest.raises(DataError, match="one hub:NAME or paths"):
            Texts.at(data)


def test_a_stream_of_the_hub_is_read_as_far_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a data set that never ends."""
    datasets = pytest.importorskip("datasets")
    read: list[int] = []

    def endless(name: str, split: str, streaming: bool) -> Iterator[dict[str, str]]:
        assert (name, split, streaming) == ("pile", "train", True)
        for number in itertools.count():
            read.append(number)
            yield {"meta": "x", "text": document(number) if number != 3 else None}

    monkeypatch.setattr(datasets, "load_dataset", endless)
    found = open_corpus(["hub:pile"], tmp_path, length=16, vocabulary=90, documents=400)
    assert max(read) <= 401  # one of them has no text
    assert len(found.train) > 190 * len(found.validation) / 2 > 0
    again = open_corpus(["hub:pile"], tmp_path, length=16, vocabulary=90, documents=401)
    assert again.train.key != found.train.key


def test_a_stream_that_breaks_off_or_holds_something_else_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that went away in the middle gave an error that did not say whose, a number a traceback."""
    datasets = pytest.importorskip("datasets")

    def stream(name: str, **_: object) -> Iterator[dict[str, object]]:
        yield {"text": document(0)}
        if name == "numbers":
            yield {"text": 7}
        raise ConnectionError("peer went away")

    monkeypatch.setattr(datasets, "load_dataset", stream)
    with pytest.raises(DataError, match=r"hub:pile cannot be read \(ConnectionError: peer went away\).*same command"):
        open_corpus(["hub:pile"], tmp_path, length=16, vocabulary=90)
    with pytest.raises(DataError, match="hub:numbers, row 1: expected text in 'text', got int"):
        open_corpus(["hub:numbers"], tmp_path, length=16, vocabulary=90)


def test_a_book_in_one_file_is_held_out_by_passages_and_too_little_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("\n".join(document(i) for i in range(14_000)))
    found = list(Texts.at([tmp_path / "book.txt"]).read("validation"))
    assert len(found) == 1
    assert 10_000 < len(found[0]) <= 20_000
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "few.txt").write_text("\n".join(document(i) for i in range(40)))
    with pytest.raises(DataError, match="too little is held out .* a file called validation"):
        corpus(tmp_path)
