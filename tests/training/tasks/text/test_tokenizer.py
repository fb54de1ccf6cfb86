"""The tokenizer of a corpus: what it is trained on, which others are taken, and what they do to documents."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path

import pytest
import torch
from training.tasks.text.conftest import corpus, document

from unsmooth.errors import DataError
from unsmooth.training.tasks.text import corpus as module
from unsmooth.training.tasks.text.corpus import encoded, open_corpus
from unsmooth.training.tasks.text.tokenizer import open_tokenizer, tokenizer_hash, train_tokenizer


def test_the_same_texts_give_the_same_tokenizer_in_another_cache(folder: Path) -> None:
    """Else a record's command would train on other ids elsewhere, and a run would not go on without its cache."""
    made = corpus(folder)
    (folder / "cache").rename(folder / "lost")
    again = corpus(folder)
    assert again.tokenizer.get_vocab() == made.tokenizer.get_vocab()
    assert again.train.key == made.train.key
    assert sorted(again.tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
    assert again.tokenizer.tokenize("quick ##u") == made.tokenizer.tokenize("quick # # u")


def test_a_corpus_in_one_file_gives_its_tokenizer_more_than_its_beginning(tmp_path: Path) -> None:
    """Of train.txt beside validation.txt the first 20,000 characters alone were seen: "expected more text"."""
    (tmp_path / "texts").mkdir()
    begin = "\n".join(document(i) for i in range(100))
    assert len(begin) > module.PASSAGE
    (tmp_path / "texts" / "train.txt").write_text(f"{begin}\n" + "жук и юла\n" * 50)
    (tmp_path / "texts" / "validation.txt").write_text(document(1))
    tokenizer = corpus(tmp_path).tokenizer
    assert tokenizer.unk_token not in tokenizer.tokenize("жук и юла")


def test_a_long_document_is_tokenised_in_pieces_without_a_trace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, a corpus in one file took a hundred bytes of memory for each of its characters."""
    tokenizer = corpus(folder).tokenizer
    documents = ["\n".join(document(i, 5) for i in range(80)), document(3), "\n\n", document(5) + "\n"]
    whole = [ids.tolist() for ids in encoded(documents, tokenizer)]
    assert len(whole) == len(documents)
    monkeypatch.setattr(module, "AT_ONCE", 400)
    parts = [ids.tolist() for ids in encoded(documents, tokenizer)]
    assert len(parts) > len(documents) + 2
    assert list(itertools.chain(*parts)) == list(itertools.chain(*whole))


def test_a_tokenizer_of_ones_own_is_taken(folder: Path, tmp_path: Path) -> None:
    first = corpus(folder)
    first.tokenizer.save_pretrained(tmp_path / "mine")
    again = corpus(folder, tokenizer=tmp_path / "mine", vocabulary=5)
    assert again.train.key == first.train.key
    assert tokenizer_hash(open_tokenizer(tmp_path / "mine")) == tokenizer_hash(first.tokenizer)


def test_a_tokenizer_that_cuts_and_pads_does_neither_to_documents(folder: Path, tmp_path: Path) -> None:
    """Those of sentence encoders ask for both in their files: all but the first tokens of a document were lost."""
    first = corpus(folder)
    asks = copy.deepcopy(first.tokenizer)
    asks.backend_tokenizer.enable_truncation(8)
    asks.backend_tokenizer.enable_padding(length=8, pad_token="[PAD]")
    asks.save_pretrained(tmp_path / "mine")
    assert '"max_length": 8' in (tmp_path / "mine" / "tokenizer.json").read_text()
    again = corpus(folder, tokenizer=tmp_path / "mine")
    everything = torch.arange(len(first.train))
    assert torch.equal(again.train.rows(everything), first.train.rows(everything))
    place = again.train.folder.parent
    assert open_corpus([place], folder, length=16, vocabulary=5).train.key == again.train.key
    (short,) = encoded(["a few words"], asks)
    assert short.tolist()[-1] == asks.sep_token_id
    assert asks.pad_token_id not in short


def test_a_tokenizer_that_leaves_ids_out_has_all_its_ids(folder: Path, tmp_path: Path) -> None:
    """Fewer pieces than the largest id: an embedding of [MASK] was not there, an IndexError in the first step."""
    corpus(folder).tokenizer.save_pretrained(tmp_path / "gap")
    path = tmp_path / "gap" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["[MASK]"] = 100
    next(token for token in content["added_tokens"] if token["content"] == "[MASK]")["id"] = 100
    path.write_text(json.dumps(content))
    found = corpus(folder, tokenizer=tmp_path / "gap")
    assert found.tokenizer.mask_token_id == 100
    assert len(found.tokenizer) == 90
    assert found.train.vocabulary == 101


def test_a_tokenizer_that_does_not_know_the_text_is_refused(folder: Path, tmp_path: Path) -> None:
    """One of another language or of molecules: a model that guesses "unknown" is right in 96 %."""
    train_tokenizer(["один два три четыре пять " * 50], 40).save_pretrained(tmp_path / "other")
    with pytest.raises(DataError, match=r"at .*other, \d+ % of the text is unknown \(\[UNK\]\)"):
        corpus(folder, tokenizer=tmp_path / "other")


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no tokenizer at"):
        open_tokenizer(tmp_path)
