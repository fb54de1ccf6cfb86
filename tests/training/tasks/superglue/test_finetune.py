"""Fine-tuning and its scores, on a tiny encoder and tasks that it can learn."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BartConfig,
    BartModel,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaModel,
    RoFormerConfig,
    RoFormerModel,
    T5Config,
    T5ForConditionalGeneration,
)

from unsmooth.errors import CheckpointError, DataError, ForwardError, OptionError, OutputError, UnknownModelError
from unsmooth.sources import LoadedModel
from unsmooth.training.engine.step import Speed
from unsmooth.training.tasks.superglue.classifier import FastFeatures, classifier, encode, find_encoder, positions
from unsmooth.training.tasks.superglue.evaluation import SuperGlue, evaluate_superglue
from unsmooth.training.tasks.superglue.examples import TASKS, Example, read_examples
from unsmooth.training.tasks.superglue.finetune import FineTuner, FineTuneTask, FineTuning, Split
from unsmooth.training.tasks.text.model import build_model
from unsmooth.training.tasks.text.recipe import RECIPES
from unsmooth.training.tasks.text.tokenizer import train_tokenizer

HOW = FineTuning(lr=3e-3, batch_size=8, epochs=8, length=16, precision="float32")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(["yes no maybe it is red blue green what because so house tree " * 50], 60)


@pytest.fixture
def loaded(tokenizer: Any) -> LoadedModel:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **shape))
    return LoadedModel(model.eval(), "tiny", "text", tokenizer=tokenizer)


def write(folder: Path, name: str, records: list[dict[str, Any]]) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for split, part in (("train", records[:48]), ("val", records[48:])):
        (folder / name / f"{split}.jsonl").write_text("\n".join(map(json.dumps, part)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tasks whose answer is one word of the text."""
    colours = ["red", "blue"]
    entail = [
        {
            "premise": f"it is {colours[i % 2]}",
            "hypothesis": "house tree",
            "label": ["entailment", "not_entailment"][i % 2],
        }
        for i in range(64)
    ]
    copa = [
        {
            "premise": "it is",
            "question": "cause",
            "choice1": colours[i % 2],
            "choice2": colours[1 - i % 2],
            "label": i % 2,
        }
        for i in range(64)
    ]
    write(tmp_path, "RTE", entail)
    write(tmp_path, "COPA", copa)
    return tmp_path


@pytest.mark.parametrize("name", ["RTE", "COPA"])
def test_an_encoder_learns_a_task_that_can_be_learned(folder: Path, loaded: LoadedModel, name: str) -> None:
    found = evaluate_superglue(loaded, folder, [TASKS[name]], how=HOW, seeds=2, device="cpu")
    mean, spread, count = found.mean(name)
    assert mean > 0.95
    assert count == 2
    assert spread < 0.1
    assert found.majority[name]["score"] == 0.5
    assert found.average == mean


def test_interrupted_work_goes_on_and_scores_stay_the_same(folder: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    out, tasks = tmp_path / "scores.json", [TASKS["RTE"], TASKS["COPA"]]
    how = FineTuning(epochs=1, length=16, precision="float32")

    def stop(task: str, seed: int, scores: dict[str, Any]) -> None:
        if task == "COPA":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_superglue(loaded, folder, tasks, how=how, seeds=2, out=out, device="cpu", progress=stop)
    assert SuperGlue.load(out).scores.keys() == {"RTE", "COPA"}
    done: list[tuple[str, int]] = []
    options: dict[str, Any] = {"how": how, "seeds": 2, "device": "cpu"}
    again = evaluate_superglue(loaded, folder, tasks, out=out, progress=lambda t, s, _: done.append((t, s)), **options)
    assert done == [("COPA", 1)]
    assert again.scores == evaluate_superglue(loaded, folder, tasks, **options).scores
    with pytest.raises(CheckpointError, match="another model or other settings"):
        evaluate_superglue(loaded, folder, tasks, how=HOW, seeds=2, out=out, device="cpu")


@pytest.mark.parametrize(
    ("known", "minutes", "run"),
    [
        ({"RTE": 100.0}, 0.05, []),  # 64 steps of 0.1 s do not fit into what is left, on another task
        ({"RTE": 100.0}, 1.0, ["COPA"]),
        ({"RTE": 9_000.0, "MultiRC": 100.0}, 1.0, ["COPA"]),  # longer texts say more about a GPU
        ({"CB": 9_000.0, "RTE": 100.0}, 1.0, ["COPA"]),  # the last one, not the slowest: a few steps beside other work
        ({"CB": 100.0, "RTE": 9_000.0}, 1.0, []),
    ],
)
def test_interrupted_work_knows_what_a_step_took(
    folder: Path, loaded: LoadedModel, tmp_path: Path, known: dict[str, float], minutes: float, run: list[str]
) -> None:
    """What does not fit into the time that is left used to be started where nothing had been in this process."""
    out, how = tmp_path / "scores.json", FineTuning(epochs=1, batch_size=2)
    tasks = [TASKS["COPA"], *(TASKS[name] for name in known)]
    begun = evaluate_superglue(loaded, folder, [], how=how, out=out, device="cpu")
    one = {0: {"score": 0.5}}
    begun.scores, begun.protocol["milliseconds_per_step"] = dict.fromkeys(known, one), known
    begun.save(out)
    found = evaluate_superglue(loaded, folder, tasks, how=how, seeds=1, minutes=minutes, out=out, device="cpu")
    assert [name for name in found.scores if name not in known] == run


def test_a_second_process_is_refused_the_same_file(folder: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    """Both kept their own scores in memory, and the last to write lost the other's."""
    options: dict[str, Any] = {"how": replace(HOW, epochs=1), "seeds": 1, "device": "cpu"}
    refused: list[str] = []

    def meanwhile(*_: object) -> None:
        with pytest.raises(OutputError, match="another process is writing its scores to .*--out") as error:
            evaluate_superglue(loaded, folder, [TASKS["COPA"]], out=tmp_path / "scores.json", **options)
        refused.append(str(error.value))
        evaluate_superglue(loaded, folder, [TASKS["COPA"]], out=tmp_path / "others.json", **options)

    evaluate_superglue(loaded, folder, [TASKS["RTE"]], out=tmp_path / "scores.json", progress=meanwhile, **options)
    assert len(refused) == 1
    both = evaluate_superglue(loaded, folder, [TASKS["COPA"]], out=tmp_path / "scores.json", **options)
    assert both.scores.keys() == {"RTE", "COPA"}


def splits(folder: Path, loaded: LoadedModel, length: int = 16) -> list[Split]:
    return [
        Split.of(read_examples(folder, TASKS["RTE"], split), loaded.tokenizer, length) for split in ("train", "val")
    ]


def test_a_seed_scores_the_same_after_another_one(folder: Path, loaded: LoadedModel) -> None:
    """What is compiled and captured stays; the model, its head and the optimiser start anew."""
    how = FineTuning(lr=3e-4, batch_size=8, epochs=2, length=16, precision="float32")
    tuner = FineTuner(loaded.model, TASKS["RTE"], *splits(folder, loaded), how, torch.device("cpu"))
    first, other, again = (tuner.run(seed) for seed in (0, 1, 0))
    assert first == again
    assert first["loss"] != other["loss"]
    assert tuner.milliseconds > 0
    fresh = FineTuner(loaded.model, TASKS["RTE"], *splits(folder, loaded), how, torch.device("cpu"))
    assert fresh.run(1) == other


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler looks at it
@pytest.mark.parametrize("length", [24, 160])  # one tile, and longer
def test_kernels_fine_tune_as_hugging_face_does(folder: Path, tokenizer: Any, length: int) -> None:
    """Captured, with our kernels, in bfloat16, beside the encoder as it is in float32."""
    recipe = RECIPES["small-text"].override(["depth=2", "width=64", "heads=2", "inner=64"])
    model = LoadedModel(build_model(recipe, len(tokenizer), tokenizer, 0).eval(), "tiny", "text", tokenizer=tokenizer)
    found = []
    for precision in ("bf16", "float32"):
        how = FineTuning(lr=1e-3, batch_size=8, epochs=6, length=length, precision=precision)
        tuner = FineTuner(model.model, TASKS["RTE"], *splits(folder, model, length), how, torch.device("cuda"))
        assert isinstance(tuner.trainer.fast, FastFeatures) == (precision == "bf16")
        found.append([tuner.run(seed) for seed in (0, 1, 0)])
        assert found[-1][0]["loss"] == pytest.approx(found[-1][2]["loss"], rel=1e-2)
    assert [run["loss"] for run in found[0]] == pytest.approx([run["loss"] for run in found[1]], rel=0.3, abs=0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("copies", [True, False])
def test_a_step_that_no_graph_can_hold_is_run_as_it_is(folder: Path, loaded: LoadedModel, copies: bool) -> None:
    """MPNet's mask copied a constant from the host in every step; BERT's asks only where nothing is recorded."""
    if copies:
        loaded.model.get_input_embeddings().register_forward_pre_hook(lambda *_: (torch.zeros(1).cuda(), None)[1])
    how = FineTuning(lr=1e-3, batch_size=8, epochs=4, length=16, precision="float32")
    runs = []
    for speed in (Speed(compile_mode=None), Speed(compile_mode=None, graph=False)):
        tuner = FineTuner(loaded.model, TASKS["RTE"], *splits(folder, loaded), how, torch.device("cuda"), speed)
        runs.append([tuner.run(seed)["loss"] for seed in (0, 1, 0)])
        assert tuner.trainer.graphed == (speed.graph and not copies)
    assert runs[0] == pytest.approx(runs[1], rel=1e-3)


def test_the_model_itself_is_not_changed(folder: Path, loaded: LoadedModel) -> None:
    before = {name: t.clone() for name, t in loaded.model.state_dict().items()}
    evaluate_superglue(loaded, folder, [TASKS["RTE"]], how=FineTuning(epochs=1, length=16), seeds=1, device="cpu")
    assert all(torch.equal(before[name], t) for name, t in loaded.model.state_dict().items())


def test_padding_changes_no_logit(loaded: LoadedModel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uneven = Example((("red", "blue"), ("red", "it is red and blue and red again")), 0)
    examples = [*read_examples(folder, TASKS["COPA"], "val")[:3], uneven]
    model = classifier(loaded.model, TASKS["COPA"], 0).eval()
    ids, mask = encode(examples, loaded.tokenizer, 128)
    assert ids.shape[-1] == -(-int(mask.sum(-1).max()) // 16) * 16 < 128  # no wider than the longest, in sixteens
    longest = mask.sum(-1).amax(1)
    assert longest.unique().numel() > 1
    widths, features = list[int](), model.features
    monkeypatch.setattr(model, "features", lambda x, m: (widths.append(x.shape[-1]), features(x, m))[1])
    with torch.no_grad():
        together = model(ids, mask)
        alone = torch.cat([model(*row) for row in zip(ids[:, None], mask[:, None], strict=True)])
    assert widths == [int(longest.max()), *longest.tolist()]  # a CPU does not compute what a whole batch lacks
    assert torch.allclose(together, alone, atol=1e-5)
    assert together.shape == (4, 2)


def test_padding_stands_after_the_tokens_whatever_the_tokenizer_would_do(tokenizer: Any, folder: Path) -> None:
    uneven = Example((("red", "blue"), ("red", "it is red")), 0)
    examples = [*read_examples(folder, TASKS["COPA"], "val")[:2], uneven]
    (ids, mask), other = encode(examples, tokenizer, 32), copy.deepcopy(tokenizer)
    assert mask.sum(-1).unique().numel() > 1
    assert (mask.int().diff() <= 0).all()
    assert (ids[~mask] == tokenizer.pad_token_id).all()
    for row, pair in zip(ids.flatten(0, 1), [p for e in examples for p in e.choices], strict=True):
        whole = tokenizer(*pair)["input_ids"]
        assert row[: len(whole)].tolist() == whole
    other.padding_side = "left"
    assert all(map(torch.equal, encode(examples, other, 32), (ids, mask)))
    other.pad_token = None  # as of GPT-2
    without, same = encode(examples, other, 32)
    assert torch.equal(same, mask)
    assert torch.equal(without[mask], ids[mask])


def test_a_pair_without_tokens_is_refused(tokenizer: Any) -> None:
    """The mean over none of its features would make the whole batch's loss NaN."""

    def words(first: list[str], second: list[str], **_: object) -> dict[str, list[list[int]]]:
        pairs = zip(first, second, strict=True)
        return {"input_ids": [tokenizer.convert_tokens_to_ids(f"{a} {b}".split()) for a, b in pairs]}

    with pytest.raises(DataError, match=r"\('', ''\) has no tokens: expected a text in each pair"):
        encode([Example((("red", "blue"),), 0), Example((("", ""),), 1)], words, 16)


def test_every_epoch_holds_other_batches_and_a_seed_repeats_them(loaded: LoadedModel, folder: Path) -> None:
    task = TASKS["RTE"]
    train, val = (Split.of(read_examples(folder, task, split), loaded.tokenizer, 16) for split in ("train", "val"))
    one, two, other = (
        FineTuneTask(task, classifier(loaded.model, task, seed), train, val, HOW, seed).stream(0) for seed in (0, 0, 1)
    )
    first = next(one)
    assert torch.equal(first["ids"], next(two)["ids"])
    assert not torch.equal(first["ids"], next(other)["ids"])
    assert not torch.equal(first["ids"], next(one)["ids"])
    assert first["labels"].shape == (6, 8)


def test_decoders_are_taken_and_what_is_no_text_model_is_refused(loaded: LoadedModel, folder: Path) -> None:
    classifier(BertModel(loaded.model.config), TASKS["RTE"], 0)
    classifier(GPT2Model(GPT2Config(vocab_size=60, n_embd=16, n_layer=1, n_head=2)), TASKS["RTE"], 0)
    with pytest.raises(UnknownModelError, match="Linear is no text encoder"):
        classifier(torch.nn.Linear(2, 2), TASKS["RTE"], 0)
    bare = LoadedModel(loaded.model, "tiny", "text")
    with pytest.raises(DataError, match="tiny has no tokenizer"):
        evaluate_superglue(bare, folder, [TASKS["RTE"]], device="cpu")
    with pytest.raises(UnknownModelError, match="tiny takes images: expected a text encoder"):
        evaluate_superglue(LoadedModel(torch.nn.Linear(2, 2), "tiny", "images"), folder, [TASKS["RTE"]], device="cpu")


def test_a_model_with_too_few_positions_is_refused_before_it_is_tuned(loaded: LoadedModel, folder: Path) -> None:
    how = replace(HOW, length=129)
    with pytest.raises(OptionError, match="tiny has 128 positions, and RTE takes 129 tokens"):
        evaluate_superglue(loaded, folder, [TASKS["RTE"]], how=how, device="cpu")
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    assert positions(RobertaModel(RobertaConfig(vocab_size=60, max_position_embeddings=130, **shape))) == 128
    assert positions(build_model(RECIPES["small-text"], 60, loaded.tokenizer, 0)) is None  # rotary
    assert positions(RoFormerModel(RoFormerConfig(vocab_size=60, max_position_embeddings=64, **shape))) == 64
    assert positions(bart(64).get_encoder()) == 64


def bart(positions: int) -> BartModel:
    sizes = {f"{part}_{name}": 1 for part in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    return BartModel(BartConfig(vocab_size=60, d_model=16, max_position_embeddings=positions, **sizes))


@pytest.mark.parametrize("whole", [True, False])
def test_of_an_encoder_and_a_decoder_the_encoder_is_tuned(whole: bool, loaded: LoadedModel, folder: Path) -> None:
    """The file loader gives the encoder alone, and its configuration still tells of both."""
    shape = {"d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    for pair in (T5ForConditionalGeneration(T5Config(vocab_size=60, d_model=16, **shape)), bart(64)):
        model = pair if whole else pair.get_encoder()
        assert type(find_encoder(model)) is type(pair.get_encoder())
        given = LoadedModel(model.eval(), "tiny", "text", tokenizer=loaded.tokenizer)
        found = evaluate_superglue(given, folder, [TASKS["RTE"]], how=replace(HOW, epochs=1), seeds=1, device="cpu")
        assert found.mean("RTE")[2] == 1


def test_a_tokenizer_of_another_model_is_named(loaded: LoadedModel, folder: Path) -> None:
    """An index error of PyTorch's, or of a GPU, said nothing."""
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    small = LoadedModel(BertModel(BertConfig(vocab_size=20, **shape)).eval(), "small", "text", loaded.tokenizer)
    with pytest.raises(ForwardError, match="embeddings for the ids 0 to 19, .* the tokenizer this model's own"):
        evaluate_superglue(small, folder, [TASKS["RTE"]], how=HOW, seeds=1, device="cpu")


def test_a_model_that_gives_no_numbers_has_no_score(loaded: LoadedModel, folder: Path) -> None:
    """The first label was guessed everywhere, which looked like any other score."""
    broken = copy.deepcopy(loaded.model)
    next(p for name, p in broken.named_parameters() if "output.dense.weight" in name).data[0, 0] = float("nan")
    given = LoadedModel(broken, "tiny", "text", tokenizer=loaded.tokenizer)
    with pytest.raises(ForwardError, match="gives NaN or infinity"):
        evaluate_superglue(given, folder, [TASKS["RTE"]], how=HOW, seeds=1, device="cpu")


def test_scores_of_other_files_are_not_mixed_with_these(folder: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    options: dict[str, Any] = {"how": replace(HOW, epochs=1), "out": tmp_path / "scores.json", "device": "cpu"}
    evaluate_superglue(loaded, folder, [TASKS["RTE"], TASKS["COPA"]], seeds=1, **options)
    path = folder / "RTE" / "val.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:4]))
    with pytest.raises(CheckpointError, match=r"scores\.json holds scores of other files of RTE: choose another --out"):
        evaluate_superglue(loaded, folder, [TASKS["RTE"]], seeds=1, **options)
    assert evaluate_superglue(loaded, folder, [TASKS["COPA"]], seeds=2, **options).mean("COPA")[2] == 2
