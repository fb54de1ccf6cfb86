"""Scores are kept run by run, and only those of one model, one setting and the same files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unsmooth.errors import CheckpointError, OutputError
from unsmooth.sources import LoadedModel
from unsmooth.training.tasks.superglue.evaluation import SuperGlue, evaluate_superglue
from unsmooth.training.tasks.superglue.examples import TASKS
from unsmooth.training.tasks.superglue.finetune import FineTuning, Split

HOW = FineTuning(lr=3e-3, batch_size=8, epochs=8, length=16, precision="float32")


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


def test_a_cpu_tokenises_a_task_when_its_turn_comes(
    folder: Path, loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Done meanwhile, it took the CPU from the steps, which then seemed too slow for further runs."""
    made: list[int] = []
    real = Split.of
    monkeypatch.setattr(Split, "of", lambda examples, *given: made.append(len(examples)) or real(examples, *given))
    seen: list[int] = []
    evaluate_superglue(
        loaded, folder, [TASKS["RTE"], TASKS["COPA"]], how=replace(HOW, epochs=1), seeds=1, device="cpu",
        progress=lambda *_: seen.append(len(made)),
    )  # fmt: skip
    assert seen == [2, 4]  # splits


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


def test_scores_of_other_files_are_not_mixed_with_these(folder: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    options: dict[str, Any] = {"how": replace(HOW, epochs=1), "out": tmp_path / "scores.json", "device": "cpu"}
    evaluate_superglue(loaded, folder, [TASKS["RTE"], TASKS["COPA"]], seeds=1, **options)
    path = folder / "RTE" / "val.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:4]))
    with pytest.raises(CheckpointError, match=r"scores\.json holds scores of other files of RTE: choose another --out"):
        evaluate_superglue(loaded, folder, [TASKS["RTE"]], seeds=1, **options)
    assert evaluate_superglue(loaded, folder, [TASKS["COPA"]], seeds=2, **options).mean("COPA")[2] == 2


def test_a_call_for_one_task_does_not_speak_for_the_others(folder: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    """A file whose RTE was cut short said "every task with every seed" after a call for COPA alone."""
    out, options = tmp_path / "scores.json", {"how": replace(HOW, epochs=1), "device": "cpu"}
    begun = evaluate_superglue(loaded, folder, [TASKS["RTE"]], seeds=2, out=out, **options)
    assert begun.protocol["kept"]
    del begun.scores["RTE"][1]
    begun.save(out)
    then = evaluate_superglue(loaded, folder, [TASKS["COPA"]], seeds=1, out=out, **options)
    assert then.protocol["seeds_wanted"] == {"RTE": 2, "COPA": 1}
    assert then.protocol["seeds_run"] == {"RTE": 1, "COPA": 1}
    assert not then.protocol["kept"]
    assert then.protocol["said"] == "not every seed was run: RTE 1 of 2"


def test_runs_by_another_commit_say_so(
    folder: Path, loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, options = tmp_path / "scores.json", {"how": replace(HOW, epochs=1), "device": "cpu"}
    commits: list[list[str]] = []
    for commit, seeds in (("aaaa", 1), ("bbbb", 1), ("bbbb", 2), ("cccc", 3), ("aaaa", 4)):
        monkeypatch.setenv("UNSMOOTH_COMMIT", commit)
        evaluate_superglue(loaded, folder, [TASKS["RTE"]], seeds=seeds, out=out, **options)
        kept = SuperGlue.load(out)
        commits.append([each["commit"] for each in (kept.about, *kept.continued)])
    assert commits == [["aaaa"], ["aaaa"], ["aaaa", "bbbb"], ["aaaa", "bbbb", "cccc"], ["aaaa", "bbbb", "cccc"]]


def test_settings_say_what_a_cpu_computes_in(folder: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    """The default is bfloat16, which no CPU is asked for: seeds of a GPU are not to be mixed with these."""
    how, out = replace(HOW, epochs=1, precision="bf16"), tmp_path / "scores.json"
    found = evaluate_superglue(loaded, folder, [TASKS["RTE"]], how=how, seeds=1, out=out, device="cpu")
    assert found.settings["precision"] == "float32"
    found.settings["precision"] = "bf16"
    found.save(out)  # as earlier versions did on a CPU
    again = evaluate_superglue(loaded, folder, [TASKS["RTE"]], how=how, seeds=2, out=out, device="cpu")
    assert (again.settings["precision"], again.mean("RTE")[2]) == ("float32", 2)
    found.about["hardware"] = "1 × NVIDIA H200"
    found.save(out)
    with pytest.raises(CheckpointError, match="other settings"):
        evaluate_superglue(loaded, folder, [TASKS["RTE"]], how=how, seeds=1, out=out, device="cpu")
