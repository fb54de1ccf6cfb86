"""The small text models that ship: what their cards say, and that verbs take them."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unsmooth.analysis import explain, measure
from unsmooth.cli.demo import shipped
from unsmooth.errors import DataError, ForwardError, OptionError
from unsmooth.models import view
from unsmooth.sources import LoadedModel, load_model, open_data
from unsmooth.sources.trained import file_hash
from unsmooth.theory.spectrum import layer_spectrum
from unsmooth.training.engine.record import TrainingRecord
from unsmooth.training.tasks.text.evaluation import evaluate_masked

ZOO = Path(__file__).parents[2] / "zoo"
VARIANTS = ("plain", "sharpening", "smoothing")

pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=VARIANTS)
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    return load_model(f"zoo:text-{request.param}")


def variant(loaded: LoadedModel) -> str:
    return loaded.reference.rpartition("-")[2]


def test_eigenvalues_have_the_sign_of_the_variant(loaded: LoadedModel) -> None:
    weights = [layer.weights() for layer in view(loaded.model).layers]
    real = torch.stack([layer_spectrum(w.w_v, w.w_proj).real for w in weights])
    rounding = 1e-3 * float(real.abs().max())  # float16
    if variant(loaded) == "plain":
        assert float(real.min()) < -rounding
        assert float(real.max()) > rounding
    else:
        sign = -1 if variant(loaded) == "sharpening" else 1
        assert float((sign * real).min()) > -rounding
        assert float((sign * real).max()) > 0.1


def test_card_and_record_are_those_of_the_weights(loaded: LoadedModel) -> None:
    name = variant(loaded)
    record = TrainingRecord.load(ZOO / "results" / "models" / f"small-text-{name}")
    assert record.variant == name
    assert record.weights == file_hash(ZOO / f"text-{name}" / "model.safetensors")
    card = (ZOO / f"text-{name}" / "README.md").read_text(encoding="utf-8")
    found = re.search(r"\| held-out loss \| ([\d.]+) nats a hidden token, ([\d.]+) %", card)
    assert found is not None
    assert found.groups() == (f"{record.final['loss']:.3f}", f"{100 * record.final['accuracy']:.2f}")


def test_it_is_measured_explained_and_evaluated_on_what_is_bundled(loaded: LoadedModel) -> None:
    data = open_data("bundled", loaded, samples=2, max_length=16)
    assert data.reference == "bundled passages"
    measured = measure(loaded, data, points="all")
    assert set(measured.change_by_kind("chain")["kind"]) == {"LayerNorm", "Attention", "MLP"}
    explained = explain(loaded, open_data("bundled", loaded, samples=1, max_length=12))
    assert len(explained.about.model.name) > 0
    found = evaluate_masked(loaded, "bundled", samples=16, batch_size=8)
    assert (found.sequences, found.length) == (16, 128)
    assert 1.5 < found.loss < 4.5  # it has learned: guessing all pieces alike costs ln 4,096 = 8.3
    assert 0.25 < found.accuracy < 0.75
    again = evaluate_masked(loaded, "bundled", samples=16, batch_size=8)
    assert again.loss == pytest.approx(found.loss, rel=1e-5)


def test_a_masked_model_with_another_tokenizer_few_positions_or_no_separator() -> None:
    loaded, transformers = load_model("zoo:text-plain"), pytest.importorskip("transformers")
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}

    def tiny(**more: int) -> LoadedModel:
        model = transformers.BertForMaskedLM(transformers.BertConfig(**{"vocab_size": 4_096, **shape, **more}))
        return replace(loaded, model=model.eval(), tokenizer=copy.deepcopy(loaded.tokenizer))

    with pytest.raises(ForwardError, match="embeddings for the ids 0 to 99, .* the tokenizer this model's own"):
        evaluate_masked(tiny(vocab_size=100), "bundled", samples=2)
    with pytest.raises(ForwardError, match="this model has 64 positions"):
        evaluate_masked(tiny(max_position_embeddings=64), "bundled", samples=2)
    model = tiny()
    expected = evaluate_masked(model, "bundled", samples=2).loss
    model.tokenizer.eos_token, model.tokenizer.sep_token = "[SEP]", None
    assert evaluate_masked(model, "bundled", samples=2).loss == expected
    model.tokenizer.eos_token = None
    with pytest.raises(DataError, match="neither a separator nor an end of text"):
        evaluate_masked(model, "bundled", samples=2)
    model = tiny()
    next(model.model.parameters()).data.fill_(float("nan"))
    with pytest.raises(ForwardError, match="the loss of zoo:text-plain is nan"):
        evaluate_masked(model, "bundled", samples=2)


def test_the_demo_shows_all_three() -> None:
    assert shipped(text=True) == [f"text-{name}" for name in VARIANTS]


def test_only_masked_language_models_guess_hidden_tokens() -> None:
    image = load_model("zoo:cifar100-plain")
    with pytest.raises(OptionError, match="no tokenizer that can mask"):
        evaluate_masked(image, "bundled")
