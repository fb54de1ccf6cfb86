"""The verbs `train` and `evaluate`, as a person types them."""

from __future__ import annotations

import json
import re
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
import typer
from processes import CLI, Program
from training.conftest import TINY
from typer.testing import CliRunner

from unsmooth.cli import evaluate as evaluate_verb
from unsmooth.cli import train as train_verb
from unsmooth.errors import CheckpointError, DataError, OptionError, UnsmoothError
from unsmooth.training import Run, evaluate_trained, lists
from unsmooth.training.tasks.images.evaluation import command_of_evaluation
from unsmooth.training.tasks.images.recipe import ImageRecipe
from unsmooth.training.tasks.images.scores import normalised

CHANGES = [word for change in TINY for word in ("--set", change)]


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("train")(train_verb.command)
    app.command("evaluate")(evaluate_verb.command)
    return app


@pytest.fixture(scope="module")
def trained(app: typer.Typer, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    words = ["train", "cifar100-fast", "--data", str(tiny_data), "--variant", "smoothing", *CHANGES]
    done = CliRunner().invoke(app, [*words, "--set", "epochs=2", "--out", str(out), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "test accuracy" in done.output
    assert "epoch 2/2: loss" in done.output
    return out


def test_train_leaves_model_log_and_record(trained: Path) -> None:
    for name in (
        "model.safetensors",
        "config.json",
        "log.jsonl",
        "record.json",
        "checkpoint.safetensors",
        "tensorboard",
    ):
        assert (trained / name).exists(), name


def test_tensorboard_can_be_left_out(app: typer.Typer, tiny_data: Path, tmp_path: Path) -> None:
    words = ["train", "cifar100-fast", "--data", str(tiny_data), *CHANGES, "--set", "epochs=1", "--device", "cpu"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path), "--no-tensorboard"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "log.jsonl").exists()
    assert not (tmp_path / "tensorboard").exists()


def test_evaluate_prints_tables_and_json(app: typer.Typer, trained: Path, tiny_data: Path, tmp_path: Path) -> None:
    words = ["evaluate", str(trained), "--data", str(tiny_data), "--device", "cpu", "--samples", "6"]
    shown = CliRunner().invoke(app, [*words, "--corruptions"])
    assert shown.exit_code == 0, shown.output
    assert "regenerated CIFAR-100-C" in shown.output
    assert "glass_blur" in shown.output
    as_json = CliRunner().invoke(app, [*words, "--json", "--out", str(tmp_path / "found.json")])
    found = json.loads(as_json.stdout)
    assert found == json.loads((tmp_path / "found.json").read_text())
    assert found["clean"]["images"] == 6
    assert found["precision"] == "float32"
    assert {"date", "commit", "hardware", "torch"} <= found.keys()
    assert len(found["smoothing"]["effective_rank"]) == 2
    assert (found["variant"], found["fraction"], found["run"]) == ("smoothing", 1.0, "cifar100-fast-smoothing-seed0")


def test_an_evaluation_says_the_command_that_repeats_it(
    app: typer.Typer, trained: Path, tiny_data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "found.json"
    words = ["evaluate", str(trained), "--data", str(tiny_data), "--device", "cpu", "--out", str(out)]
    for options, shown in (
        ([], ""),
        (["--seed", "0", "--batch-size", "500"], ""),  # the defaults
        (
            ["--precision", "bf16", "--samples", "6", "--metric-images", "5"],
            " --samples 6 --metric-images 5 --precision bf16",
        ),
    ):
        done = CliRunner().invoke(app, [*words, *options])
        assert done.exit_code == 0
        assert done.stdout.endswith(f"written to {out}\n")
        found = json.loads(out.read_text())
        assert found["command"] == f"unsmooth evaluate run --data PATH{shown}"
        assert found["model"] == "run"
        assert list(found)[list(found).index("torch") + 1] == "command"
    assert command_of_evaluation("zoo:a", corruptions=True, seed=3) == (
        "unsmooth evaluate zoo:a --data PATH --corruptions --seed 3"
    )


def test_an_unknown_precision_is_refused(trained: Path, tiny_data: Path) -> None:
    with pytest.raises(OptionError, match=r"unknown precision 'fp8': expected one of 'float32', 'bf16'"):
        evaluate_trained(str(trained), tiny_data, precision="fp8")


@pytest.mark.parametrize("name", ["samples", "batch_size", "metric_images"])
def test_an_evaluation_on_nothing_is_refused(trained: Path, tiny_data: Path, name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} must be at least 1, got 0"):
        evaluate_trained(str(trained), tiny_data, **{name: 0})


def test_a_configuration_that_is_not_complete_is_named(trained: Path, tiny_data: Path, tmp_path: Path) -> None:
    config = json.loads((trained / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "recipe": None}))
    with pytest.raises(CheckpointError, match=r"config.json is not complete: it has no recipe; train again"):
        evaluate_trained(str(tmp_path), tiny_data)


def test_smoothing_metrics_do_not_depend_on_chunks(
    app: typer.Typer, trained: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["evaluate", str(trained), "--data", str(tiny_data), "--device", "cpu", "--json", "--metric-images", "5"]
    whole = json.loads(CliRunner().invoke(app, words).stdout)
    monkeypatch.setattr("unsmooth.training.tasks.images.evaluation.normalised", partial(normalised, batch_size=2))
    parts = json.loads(CliRunner().invoke(app, words).stdout)
    assert "mean over 5 images" in parts["smoothing_definition"]
    for name, values in whole["smoothing"].items():
        assert parts["smoothing"][name] == pytest.approx(values, rel=1e-4)


def test_a_run_that_is_not_finished_is_named(app: typer.Typer, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes((trained / "checkpoint.safetensors").read_bytes())
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path), "--data", "x"])
    assert "is not finished: run its command again" in str(done.exception)


def test_ctrl_c_leaves_a_message_and_a_run_that_goes_on(tiny_data: Path, tmp_path: Path) -> None:
    words = ["train", "cifar100-fast", "--data", str(tiny_data), *CHANGES, "--set", "epochs=1000", "--device", "cpu"]
    program = Program(CLI, [*words, "--out", tmp_path], tmp_path / "said")
    assert any("epoch 2/1000" in line for line in program.lines("stderr"))
    program.send(signal.SIGINT)
    assert program.wait() == 130
    said = rf"stopped: the checkpoint in {tmp_path} is of epoch \d+ of 1000; the same command goes on"
    assert re.search(said, program.stderr)
    assert "Traceback" not in program.stderr


def test_ctrl_c_before_the_first_checkpoint_says_so(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unsmooth.training.launch", stop)
    done = CliRunner().invoke(app, ["train", "cifar100", "--data", "x", "--out", str(tmp_path)])
    assert done.exit_code == 130
    assert "stopped: there is no checkpoint yet; the same command starts anew" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "cifar10", "--data", "x"], "unknown recipe 'cifar10'"),
        (["train", "cifar100", "--data", "x", "--set", "speed=1"], "unknown recipe key 'speed'"),
        (["train", "cifar100", "--data", "/nowhere"], "no data at /nowhere"),
        (["evaluate", "zoo:nothing", "--data", "x"], "no model zoo:nothing"),
        (["evaluate", "/nowhere", "--data", "x"], "no model at '/nowhere', for there is no file /nowhere/config.json"),
        (["evaluate", "zoo:records", "--data", "x"], "no model zoo:records; available: "),
        (["evaluate", "/nowhere", "--data", "x", "--out", "."], ". is a folder: expected the name of a file to write"),
        (["evaluate", "timm:vit_tiny_patch16_224", "--data", "x"], "was not trained here: expected zoo:NAME"),
        # what would be read and not used
        (["train", "cifar100", "--data", "x", "--minutes", "4"], "one run's time is limited by --budget, such as 30m"),
        (["train", "cifar100", "--data", "x", "--records", "y"], "--minutes and --records are for --list"),
        (["train", "--list", "half", "--data", "x", "--superglue", "y"], "are for one run: give no --list"),
        (["train", "--list", "half", "--data", "x", "--json"], "are for one run: give no --list"),
        (["evaluate", "zoo:a", "--superglue", "x", "--corruptions"], "--metric-images are for --data"),
        (["evaluate", "zoo:a", "--superglue", "x", "--samples", "3"], "--metric-images are for --data"),
        (["evaluate", "zoo:a", "--superglue", "x", "--seed", "3"], "reads all, with seeds 0, 1, …"),
        (["evaluate", "zoo:text-plain", "--data", "bundled", "--batch-size", "9"], "--precision are for images"),
        (["evaluate", "zoo:text-plain", "--data", "bundled", "--precision", "bf16"], "--precision are for images"),
        (["train", "small-text", "--data", ""], "the name of the data is empty"),
    ],
)
def test_errors_say_what_to_do(app: typer.Typer, words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert isinstance(done.exception, UnsmoothError)
    assert message in str(done.exception)


def test_a_wrong_variant_is_refused_before_data_is_read(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["train", "cifar100", "--data", "/nowhere", "--variant", "sharp"])
    assert "unknown variant 'sharp'" in str(done.exception)


def test_a_list_of_runs_skips_what_has_a_record(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tiny_recipe.override(["epochs=1"])
    wanted = [Run(recipe, "plain", seed, 0.5) for seed in (0, 1)]
    options = {"data": tiny_data, "out": tmp_path / "runs", "records": tmp_path / "records", "device": "cpu"}
    lists.train_all(wanted[:1], minutes=10, **options)
    lists.train_all(wanted, minutes=10, **options)
    assert "cifar100-fast-50pct-plain-seed0: done already" in capsys.readouterr().out
    assert len(list((tmp_path / "records").glob("*.json"))) == 2
    lists.train_all([Run(recipe, "plain", 2, 0.5), Run(recipe, "plain", 3, 0.5)], minutes=0.001, **options)
    assert "cifar100-fast-50pct-plain-seed3: not started" in capsys.readouterr().out


def test_a_run_that_breaks_is_written_down_and_the_next_one_starts(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Run(tiny_recipe.override(["lr=1e30", "clip_norm=0"]), "plain", 0, 0.5)
    fine = Run(tiny_recipe.override(["epochs=1"]), "plain", 1, 0.5)
    options = {"data": tiny_data, "out": tmp_path / "runs", "records": tmp_path / "records", "device": "cpu"}
    lists.train_all([broken, fine], minutes=10, **options)
    failure = json.loads((tmp_path / "records" / f"{broken.name}.failed.json").read_text())
    assert "the loss is nan" in failure["failed"]
    assert failure["schema"] == "unsmooth-failure/1"
    assert (tmp_path / "records" / f"{fine.name}.json").exists()
    capsys.readouterr()
    lists.train_all([broken], minutes=10, **options)
    assert "done already" in capsys.readouterr().out


def test_the_lists_are_those_of_the_plan() -> None:
    assert [run.name for run in lists.find_list("ten-percent")][:4] == [
        "cifar100-10pct-plain-seed0",
        "cifar100-10pct-sharpening-seed0",
        "cifar100-10pct-smoothing-seed0",
        "cifar100-10pct-plain-seed1",
    ]
    assert len(lists.find_list("forms")) == 12
    with pytest.raises(OptionError, match="unknown list of runs 'everything'.*'ten-percent'"):
        lists.find_list("everything")


def test_data_with_classes_in_another_order_is_refused(trained: Path, tiny_data: Path, tmp_path: Path) -> None:
    config = json.loads((trained / "config.json").read_text())
    names = [f"class {number}" for number in range(4)]
    assert config["class_names"] == names
    shutil.copytree(trained, tmp_path / "run")
    for written, said in (
        (names[::-1], r"the model and the data number their classes differently, .*: expected .* class 3, class 2, "),
        (
            ["apple", *names[1:]],
            r"the model and the data name different classes \(only the model has apple; only the data has class 0\)",
        ),
    ):
        (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "class_names": written}))
        with pytest.raises(DataError, match=said):
            evaluate_trained(str(tmp_path / "run"), tiny_data)
    del config["class_names"]  # older models and data without names: nothing is known
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert evaluate_trained(str(tmp_path / "run"), tiny_data).clean.images == 16
