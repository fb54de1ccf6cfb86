"""The checkpoints of a training: found, measured once each, and shown over their steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import unsmooth
from unsmooth.analysis import track as tracking
from unsmooth.analysis.processes import Team
from unsmooth.analysis.track import find_checkpoints, tracked
from unsmooth.cli.app import app
from unsmooth.errors import CheckpointError
from unsmooth.sources.loaded import LoadedModel

transformers = pytest.importorskip("transformers")


def test_a_folder_is_measured_once_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    for step in (1000, 200):
        torch.manual_seed(step)
        transformers.GPT2Model(config).save_pretrained(tmp_path / "runs" / f"checkpoint-{step}")
    monkeypatch.chdir(tmp_path)
    command = ["track", "runs", "--data", "random", "--samples", "2", "--max-length", "8", "--device", "cpu", "--json"]
    app(command, standalone_mode=False)
    said = json.loads(capsys.readouterr().out)
    assert [each["step"] for each in said] == [200, 1000]
    assert sorted(said[0]["negative"]) == ["0", "1"]
    alone = unsmooth.measure(
        unsmooth.load_model("hf:runs/checkpoint-200"),
        unsmooth.sources.open_data("random", unsmooth.load_model("hf:runs/checkpoint-200"), samples=2, max_length=8),
        points="residual",
    )
    ends = [cell for cell in alone.cells if cell.metric == "hfc_lfc"]
    assert said[0]["ends"][0]["last"] == pytest.approx(alone.cells[ends[-1]].mean, rel=1e-9)
    page = Path("track.html").read_text()
    assert page.count('data-step="1"') == 3
    assert page.count('class="chart wide"') == page.count('class="chart narrow"')  # its words can be read on a phone
    assert "How far the tokens of a sample are from their mean" in page
    assert "Eigenvalues on the sharpening side" in page
    torch.manual_seed(3)
    transformers.GPT2Model(config).save_pretrained(tmp_path / "runs" / "checkpoint-3000")
    measured: list[int] = []
    negative = tracking._negative
    monkeypatch.setattr(tracking, "_negative", lambda loaded: measured.append(1) or negative(loaded))
    app(command, standalone_mode=False)
    assert [each["step"] for each in json.loads(capsys.readouterr().out)] == [200, 1000, 3000]
    assert len(measured) == 1


def test_steps_are_read_from_names_and_trainers_else_counted(tmp_path: Path) -> None:
    assert find_checkpoints(["hf:a/b@step512", "hf:a/b@step8"]) == [("hf:a/b@step8", 8), ("hf:a/b@step512", 512)]
    assert find_checkpoints(["zoo:x", "zoo:y"]) == [("zoo:x", 0), ("zoo:y", 1)]
    for folder in ("run", "run/checkpoints/step-8", "run/checkpoints/step-0", "run/checkpoints/.step-9.part"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").write_text("{}")
    kept = tmp_path / "run" / "checkpoints"  # of a run of ours, which is itself a model
    assert find_checkpoints([str(tmp_path / "run")]) == [(str(kept / "step-0"), 0), (str(kept / "step-8"), 8)]
    assert find_checkpoints([str(kept)]) == [(str(kept / "step-0"), 0), (str(kept / "step-8"), 8)]
    tmp_path = tmp_path / "empty"
    tmp_path.mkdir()
    with pytest.raises(CheckpointError, match="no checkpoints in"):
        find_checkpoints([str(tmp_path)])


def test_all_processes_measure_what_the_first_does_not_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    loaded = LoadedModel(transformers.GPT2Model(config).eval(), "given", "text")
    measured: list[Team] = []

    def found(team: Team) -> None:
        def measure(loaded: LoadedModel) -> unsmooth.Measurement:
            measured.append(team)
            return unsmooth.measure(loaded, [{"input_ids": torch.arange(8)[None]}], "hfc_lfc")

        tracked("given", 0, lambda: loaded, measure, {}, tmp_path, team)

    found(Team())
    found(Team())
    assert measured == [Team()]
    second = Team(1, 2)  # its files are there, the first process has found none: it must take part all the same
    monkeypatch.setattr(Team, "_all", lambda self, mine: [None, mine])
    found(second)
    assert measured == [Team(), second]


def test_all_processes_stop_when_one_was_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Team().anybody(False)
    monkeypatch.setattr(Team, "_all", lambda self, mine: [True, mine])
    assert Team(1, 2).anybody(False)
