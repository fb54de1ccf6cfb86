"""The callbacks for Hugging Face and Lightning."""

from __future__ import annotations

import builtins
import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unsmooth
from unsmooth.callbacks import Bound, to_tensorboard
from unsmooth.errors import MissingExtraError

LOW = Bound("max", "cosine_similarity", -2.0, "blocks.1.post")


def ids(batch: int = 2) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(3, 50, (batch, 7), generator=torch.Generator().manual_seed(1))}


def language_model() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    shape = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=50, max_position_embeddings=32, **shape))


def hugging_face_training(folder: Path, callback: Any, steps: int, **options: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    torch.manual_seed(0)
    rows = [{"input_ids": row, "labels": row} for row in ids(16)["input_ids"]]
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=steps, per_device_train_batch_size=2, use_cpu=True, save_strategy="no",
        logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, **{"report_to": [], **options},
    )  # fmt: skip
    trainer = transformers.Trainer(
        language_model(), arguments, train_dataset=rows, callbacks=[callback] if callback else []
    )
    trainer.train()
    return trainer


def test_hugging_face_trainer_logs_and_trains_bit_equal(tmp_path: Path) -> None:
    from unsmooth.callbacks.hugging_face import SmoothingCallback

    seen: list[int] = []
    callback = SmoothingCallback(ids(), every=2, log=lambda values, step: seen.append(step))
    plain = hugging_face_training(tmp_path, None, 5, gradient_accumulation_steps=2)
    watched = hugging_face_training(tmp_path, callback, 5, gradient_accumulation_steps=2)
    assert seen == [0, 2, 4]
    rows = [row for row in watched.state.log_history if "unsmooth/effective_rank/blocks.1.post" in row]
    assert [row["step"] for row in rows] == [0, 2, 4]
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, watched.model.state_dict()[name]), name


def test_the_autocast_of_hugging_face_does_not_reach_the_reading(tmp_path: Path) -> None:
    from unsmooth.callbacks.hugging_face import SmoothingCallback

    callback = SmoothingCallback(ids(), every=2)
    plain = hugging_face_training(tmp_path, None, 2, bf16=True)
    watched = hugging_face_training(tmp_path, callback, 2, bf16=True)
    weights = watched.model.state_dict()
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, weights[name]), name
    with torch.no_grad():  # the training itself still runs under its autocast
        assert torch.equal(plain.model(**ids()).logits, watched.model(**ids()).logits)
    assert callback.watcher is not None
    assert callback.watcher.history[-1].measurement.cells == measured_alone(weights)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_model_of_lightning_fabric_is_read_in_the_dtype_of_its_weights(precision: str) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    fabric = lightning.Fabric(accelerator="cpu", precision=precision)
    plain = language_model()
    model, optimizer = fabric.setup(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    with unsmooth.watch(model, ids(), every=1) as watcher:
        fabric.backward(model(**ids(), labels=ids()["input_ids"]).loss)
        optimizer.step()
    assert [reading.step for reading in watcher.history] == [0, 1]
    assert watcher.history[-1].measurement.cells == measured_alone(plain.state_dict())


def measured_alone(weights: dict[str, torch.Tensor]) -> Any:
    """The numbers of a model that nothing was wrapped around."""
    fresh = language_model()
    fresh.load_state_dict(weights)
    return unsmooth.measure(fresh, [ids()], points="blocks.*.post").cells


@pytest.mark.filterwarnings("default:the training stops")
def test_hugging_face_trainer_stops_at_an_alarm(tmp_path: Path) -> None:
    from unsmooth.callbacks.hugging_face import SmoothingCallback

    def late(reading: Any) -> str | None:
        return "enough" if reading.step == 3 else None

    with pytest.warns(UserWarning, match="the training stops: step 3: enough"):
        trainer = hugging_face_training(tmp_path, SmoothingCallback(ids(), every=1, alarm=late), 9)
    assert trainer.state.global_step == 3


def lightning_training(folder: Path, callback: Any, steps: int, **options: Any) -> Any:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")

    class Task(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = language_model()

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            return self.net(input_ids=batch, labels=batch).loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.manual_seed(0)
    task = Task()
    loader = torch.utils.data.DataLoader(ids(40)["input_ids"], batch_size=2)
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", logger=options.pop("logger", False),
        callbacks=[callback] if callback else [], enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
        **options,
    )  # fmt: skip
    trainer.fit(task, loader)
    return trainer


@pytest.mark.filterwarnings("ignore")
def test_lightning_logs_and_trains_bit_equal(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    from lightning.pytorch.loggers import CSVLogger

    from unsmooth.callbacks.lightning import SmoothingCallback

    seen: list[int] = []
    callback = SmoothingCallback(ids(), every=2, part="net", log=lambda values, step: seen.append(step))
    logger = CSVLogger(tmp_path)
    plain = lightning_training(tmp_path, None, 5, accumulate_grad_batches=2)
    watched = lightning_training(tmp_path, callback, 5, accumulate_grad_batches=2, logger=logger)
    assert seen == [0, 2, 4]
    written = (Path(logger.log_dir) / "metrics.csv").read_text()
    assert "unsmooth/effective_rank/blocks.1.post" in written
    for name, value in plain.lightning_module.state_dict().items():
        assert torch.equal(value, watched.lightning_module.state_dict()[name]), name


@pytest.mark.filterwarnings("ignore")
def test_lightning_stops_at_an_alarm(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    from unsmooth.callbacks.lightning import SmoothingCallback

    with pytest.warns(UserWarning, match="the training stops: step 0: cosine_similarity at blocks.1.post"):
        trainer = lightning_training(tmp_path, SmoothingCallback(ids(), every=1, part="net", alarm=LOW), 9)
    assert trainer.global_step == 0


@pytest.mark.parametrize(
    ("package", "use", "message"),
    [
        ("torch.utils.tensorboard", lambda: to_tensorboard("x"), r"needs tensorboard.*unsmooth\[train\]"),
        ("transformers", lambda: fresh("hugging_face"), r"needs transformers.*unsmooth\[text\]"),
        ("lightning.pytorch.callbacks", lambda: fresh("lightning"), "pip install lightning"),
    ],
)
def test_a_missing_library_is_named(package: str, use: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name in (package, "pytorch_lightning.callbacks"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=message):
        use()


def fresh(name: str) -> None:
    module = f"unsmooth.callbacks.{name}"
    kept = sys.modules.pop(module, None)
    try:
        importlib.import_module(module)
    finally:
        if kept is not None:
            sys.modules[module] = kept


def test_padding_in_the_probe_is_said_once(tmp_path: Path) -> None:
    from unsmooth.callbacks.hugging_face import SmoothingCallback

    probe = {**ids(), "attention_mask": torch.tensor([[1] * 7, [1] * 5 + [0] * 2])}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        hugging_face_training(tmp_path, SmoothingCallback(probe, every=1), 4)
    assert len([w for w in said if "hold padding" in str(w.message)]) == 1


def test_readings_reach_what_the_trainer_reports_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    integrations = pytest.importorskip("transformers.integrations.integration_utils")
    from unsmooth.callbacks.hugging_face import SmoothingCallback

    seen: list[tuple[int, dict[str, float]]] = []

    class Reporter(transformers.TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            seen.append((state.global_step, dict(logs)))

    monkeypatch.setitem(integrations.INTEGRATION_TO_CALLBACK, "tensorboard", Reporter)
    trainer = hugging_face_training(tmp_path, SmoothingCallback(ids(), every=2), 4, report_to=["tensorboard"])
    name = "unsmooth/effective_rank/blocks.1.post"
    rows = [(step, logs[name]) for step, logs in seen if name in logs]
    assert [step for step, _ in rows] == [0, 2, 4]
    assert [value for _, value in rows] == [row[name] for row in trainer.state.log_history if name in row]
    assert all("epoch" not in logs for _, logs in seen if name in logs)


NAME = "unsmooth/effective_rank/blocks.1.post"


def needed(package: str) -> Any:
    return pytest.importorskip(package, reason=f"{package} is not installed (pip install -e .[trackers])")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trainer", ["hugging-face", "lightning"])
def test_a_trainer_brings_readings_to_a_real_wandb(trainer: str, offline: Path) -> None:
    wandb = needed("wandb")
    if trainer == "hugging-face":
        from unsmooth.callbacks.hugging_face import SmoothingCallback

        trained = hugging_face_training(offline, SmoothingCallback(ids(), every=2), 4, report_to=["wandb"])
        last = [row[NAME] for row in trained.state.log_history if NAME in row][-1]
        name = f"train/{NAME}"  # the Trainer puts every name but its own there
    else:
        from unsmooth.callbacks.lightning import SmoothingCallback as Lightning

        loggers = pytest.importorskip("lightning.pytorch.loggers")
        seen: list[float] = []
        callback = Lightning(ids(), every=2, part="net", log=lambda values, step: seen.append(values[NAME]))
        lightning_training(offline, callback, 4, logger=loggers.WandbLogger(save_dir=offline, offline=True))
        last, name = seen[-1], NAME
    try:
        assert wandb.run.summary[name] == pytest.approx(last)
    finally:
        wandb.finish()


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_brings_readings_to_a_real_mlflow(offline: Path) -> None:
    mlflow = needed("mlflow")
    from unsmooth.callbacks.hugging_face import SmoothingCallback

    trained = hugging_face_training(offline, SmoothingCallback(ids(), every=2), 4, report_to=["mlflow"])
    run = mlflow.last_active_run()
    found = mlflow.MlflowClient().get_metric_history(run.info.run_id, NAME)
    wanted = [(row["step"], row[NAME]) for row in trained.state.log_history if NAME in row]
    assert [(metric.step, metric.value) for metric in found] == wanted


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_brings_readings_to_a_real_trackio(offline: Path) -> None:
    needed("trackio")
    from unsmooth.callbacks.hugging_face import SmoothingCallback

    options = {"report_to": ["trackio"], "run_name": "one", "project": "unsmooth"}
    trained = hugging_face_training(offline, SmoothingCallback(ids(), every=2), 4, **options)
    from trackio.sqlite_storage import SQLiteStorage

    found = [row[key] for row in SQLiteStorage.get_logs("unsmooth", "one") for key in row if key.endswith(NAME)]
    assert found == [row[NAME] for row in trained.state.log_history if NAME in row]
