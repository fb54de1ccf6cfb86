"""The runs of a list: in the time that there is, by several processes, past errors, with their results."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import Program

from unsmooth.errors import ForwardError, UnsmoothError, WeightsError
from unsmooth.paper import Context
from unsmooth.paper.columns import changes_table, kept_groups
from unsmooth.training import Run, TrainingError, TrainingRecord, lists, train
from unsmooth.training.tasks.images.recipe import ImageRecipe


def test_a_run_is_started_while_as_much_time_is_left_as_the_longest_took(
    tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs of 4, 1 and 4 minutes fit into 9, the last with no second to spare."""
    clock, lengths = [0.0], {0: 4, 1: 1, 2: 4, 3: 4}

    def train(run: Run, data: Path, folder: Path, **_: object) -> TrainingRecord:
        clock[0] += 60 * lengths[run.seed]
        what = {"run": run.name, "variant": run.variant, "seed": run.seed, "fraction": 1.0, "command": ""}
        record = TrainingRecord(**what, minutes=lengths[run.seed], final={"accuracy": 0.12345}, recipe={}, rows=[])
        record.save(folder / "record.json")
        return record

    monkeypatch.setattr(lists, "train", train)
    monkeypatch.setattr(lists.time, "monotonic", lambda: clock[0])
    wanted = [Run(tiny_recipe, seed=seed) for seed in lengths]
    records = tmp_path / "records"
    lists.train_all(wanted, tmp_path, tmp_path / "runs", records, minutes=9)
    assert sorted(path.stem for path in records.iterdir()) == [run.name for run in wanted[:3]]
    shown = capsys.readouterr().out
    assert f"{wanted[0].name}: test accuracy 12.35 % in 4.00 min" in shown
    assert f"{wanted[3].name}: not started, 0 s left" in shown


def test_a_deeper_model_needs_more_of_the_time_that_is_left(
    tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two layers took a minute, so four layers are not started with a minute and a half left."""
    clock, said = [0.0], list[str]()

    def train(run: Run, data: Path, folder: Path, **_: object) -> TrainingRecord:
        clock[0] += 60
        what = {"run": run.name, "variant": run.variant, "seed": run.seed, "fraction": 1.0, "command": ""}
        record = TrainingRecord(**what, minutes=1, final={"accuracy": 0.1}, recipe={}, rows=[])
        record.save(folder / "record.json")
        return record

    monkeypatch.setattr(lists, "train", train)
    monkeypatch.setattr(lists.time, "monotonic", lambda: clock[0])
    shallow, deep = (Run(replace(tiny_recipe, name=f"depth{depth}", depth=depth)) for depth in (2, 4))
    lists.train_all([shallow, deep], tmp_path, tmp_path / "runs", tmp_path / "records", minutes=2.5, say=said.append)
    assert said[-1] == f"{deep.name}: not started, 90 s left"


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked there")
def test_two_processes_share_a_list(tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path) -> None:
    """A run that another process trains is left to it, and the step that is compiled stays for the next seed."""
    runs = [Run(tiny_recipe.override(["epochs=1"]), seed=seed) for seed in (0, 1, 2)]
    busy, said = tmp_path / "runs" / runs[1].name, list[str]()
    hold = "import sys, time; from pathlib import Path; from unsmooth.training.engine.claim import claimed\n"
    hold += "with claimed(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    other = Program(hold, [busy], tmp_path / "other")
    assert next(other.lines()) == "held"
    (busy / "checkpoint.safetensors").write_bytes(b"its own")
    options: dict[str, Any] = {"say": said.append, "device": "cpu", "tensorboard": False}
    lists.train_all(runs, tiny_data, tmp_path / "runs", tmp_path / "records", **options)
    other.send(signal.SIGKILL)
    other.wait()
    assert f"{runs[1].name}: another process is at it" in said
    assert sorted(path.stem for path in (tmp_path / "records").iterdir()) == [runs[0].name, runs[2].name]
    assert [path.name for path in busy.iterdir()] == ["checkpoint.safetensors"]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs that are trained at once; the seeds of those that were."""
    seeds: list[int] = []

    def train(run: Run, data: Path, folder: Path, **_: object) -> TrainingRecord:
        seeds.append(run.seed)
        if run.seed == 9:
            raise RuntimeError("out of memory")
        what = {"run": run.name, "variant": run.variant, "seed": run.seed, "fraction": 1.0, "command": ""}
        record = TrainingRecord(**what, minutes=1, final={"accuracy": 0.1}, recipe={}, rows=[])
        record.save(folder / "record.json")
        return record

    monkeypatch.setattr(lists, "train", train)
    return seeds


def test_an_error_that_nobody_foresaw_ends_its_run_alone(
    tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: list[int]
) -> None:
    """Also one in what is made of a trained model, which is trained no second time for it."""
    made: list[str] = []

    def write(recipe: ImageRecipe, folder: Path, *_: object, **__: object) -> None:
        if folder.name.endswith("seed1"):
            raise ZeroDivisionError("by nothing")
        made.append(folder.name)

    monkeypatch.setattr(ImageRecipe, "write_results", write)
    runs, said = [Run(tiny_recipe, seed=seed) for seed in (9, 1, 2)], list[str]()
    places = (tmp_path / "runs", tmp_path / "records")
    for _ in range(2):
        with pytest.raises(UnsmoothError, match=r"seed9 ended with an error, and so did .*seed1; .*on: out of memory"):
            lists.train_all(runs, tmp_path, *places, say=said.append, results=tmp_path / "results")
        assert made.pop() == runs[2].name
    assert trained == [9, 1, 2, 9]
    assert said.count(f"{runs[1].name}: ZeroDivisionError: by nothing") == 2
    assert sorted(path.stem for path in places[1].iterdir()) == [run.name for run in runs[1:]]


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked there")
def test_what_is_made_of_a_model_is_made_by_one_process(
    tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: list[int]
) -> None:
    """While one evaluates what it trained, another one that shares the list leaves the run to it."""
    runs, said, made = [Run(tiny_recipe, seed=0)], list[str](), list[str]()

    def train_all(say: Any) -> None:
        lists.train_all(runs, tmp_path, tmp_path / "runs", tmp_path / "records", say=say, results=tmp_path / "results")

    def write(recipe: ImageRecipe, folder: Path, *_: object, **__: object) -> None:
        made.append(folder.name)
        train_all(said.append)

    monkeypatch.setattr(ImageRecipe, "write_results", write)
    train_all(print)
    assert made == [runs[0].name]
    assert trained == [0]
    assert said == [f"{runs[0].name}: done already", f"{runs[0].name}: another process is at it"]


@pytest.mark.parametrize("kind", [TrainingError, WeightsError])
def test_the_record_of_a_broken_run_keeps_the_epochs_before(
    kind: type[Exception], tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss that is not a number, or a Θ that control finds singular."""

    def train(run: Run, data: Path, folder: Path, **_: object) -> dict[str, Any]:
        folder.mkdir(parents=True)
        (folder / "log.jsonl").write_text('{"epoch": 1, "train_loss": 2.5}\n')
        raise kind("it is nan")

    monkeypatch.setattr(lists, "train", train)
    run = Run(tiny_recipe)
    lists.train_all([run], tmp_path, tmp_path / "runs", tmp_path / "records", minutes=10)
    failure = json.loads((tmp_path / "records" / f"{run.name}.failed.json").read_text())
    assert failure["failed"] == "it is nan"
    assert failure["epochs"] == [{"epoch": 1, "train_loss": 2.5}]
    assert failure["command"].startswith("unsmooth train cifar100-fast --variant plain")
    assert (failure["variant"], failure["seed"], failure["std"]) == ("plain", 0, None)


@pytest.mark.parametrize("variant", ["plain", "sharpening", "featscale"])
def test_a_run_in_the_place_of_another_seeds_is_what_it_is_alone(
    variant: str, tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path
) -> None:
    """Also on other images, and after one that broke off; one that goes on from a checkpoint starts afresh."""
    recipe, kept = tiny_recipe.override(["epochs=2", "drop_path=0.3"]), dict[Any, Any]()
    runs = [Run(recipe, variant, seed, fraction=0.5, subset=subset) for seed, subset in ((0, 0), (1, 2))]
    options: dict[str, Any] = {"device": "cpu", "tensorboard": False}
    alone = [train(run, tiny_data, tmp_path / f"alone-{run.name}", **options) for run in runs]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(runs[1], tiny_data, tmp_path / "cut", kept=kept, progress=stop, **options)
    (trainer,) = kept.values()
    for run, expected in zip(runs, alone, strict=True):
        found = train(run, tiny_data, tmp_path / run.name, kept=kept, **options)
        assert list(kept.values()) == [trainer]
        assert found is not None
        assert expected is not None
        assert (found.weights, found.final, found.data_hash) == (expected.weights, expected.final, expected.data_hash)
    assert len({record.weights for record in alone if record}) == 2
    train(Run(recipe, variant), tiny_data, tmp_path / "all", kept=kept, **options)  # twice as many images
    assert kept[recipe, variant] is not trainer
    trainer = kept[recipe, variant]
    (tmp_path / run.name / "record.json").unlink()
    train(run, tiny_data, tmp_path / run.name, kept=kept, **options)  # from its checkpoint
    assert kept[recipe, variant] is not trainer


def raise_error(error: Exception) -> None:
    raise error


def test_results_of_a_list_are_what_reproduce_reads(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unsmooth import load
    from unsmooth.training.tasks.images import data, results
    from unsmooth.training.tasks.images.data import ImageSet, load_images

    assert results.load_images is load_images  # imported before it is replaced
    read: list[str] = []

    def counted(path: str, split: str) -> ImageSet:
        read.append(split)
        return load_images(path, split)

    monkeypatch.setattr(data, "load_images", counted)  # what the kept path calls
    recipe = replace(tiny_recipe.override(["epochs=1"]), name="tiny-imagenet")  # which stands in for the paper's ViT-S
    runs = [Run(recipe, variant) for variant in ("plain", "sharpening-split")]
    said: list[str] = []
    options = {"say": said.append, "results": tmp_path / "results", "device": "cpu", "tensorboard": False}
    with monkeypatch.context() as broken:  # of the first call, not of the second
        broken.setattr(results, "explain", lambda *_, **__: raise_error(ForwardError("no matrix")))
        lists.train_all(runs[:1], tiny_data, tmp_path / "runs", tmp_path / "records", **options)
    assert any("no explanation.json (no matrix)" in line for line in said)
    said.clear()
    read.clear()
    lists.train_all(runs, tiny_data, tmp_path / "runs", tmp_path / "records", **options)
    assert read == ["test", "train"]  # the first needs the explanation alone
    for run in runs:
        folder = tmp_path / "results" / run.short_name
        assert TrainingRecord.load(folder).variant == run.variant
        measured, explained = load(folder / "measurement.json"), load(folder / "explanation.json")
        assert "16 samples" in repr(measured)
        assert measured.about.model.reference == run.name == explained.about.model.reference
        assert json.loads((folder / "evaluation.json").read_text())["clean"]["images"] == 16
        assert (folder / "attribution.json").exists()
    assert said[:2] == ["tiny-imagenet-plain-seed0: done already", "tiny-imagenet-sharpening-split-seed0: started"]
    again: list[str] = []
    lists.train_all(
        runs, tiny_data, tmp_path / "new", tmp_path / "other", say=again.append, results=tmp_path / "results"
    )
    assert again == [f"{run.name}: done already" for run in runs]  # nothing is written over results that are there
    notes: list[str] = []
    table = changes_table("table1", kept_groups(Context(runs=tmp_path / "results"), notes))
    for title in ("ViT-S", "ViT-S (sharpening), split"):
        assert [row[3] for row in table.rows if row[1:3] == [title, "chain"]] == ["LayerNorm", "Attention", "MLP"]
    assert any("sharpening-split-seed0 was not trained by its recipe as it stands" in note for note in notes)
