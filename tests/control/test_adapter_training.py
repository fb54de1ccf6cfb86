"""Adapters in the loops that people have: transformers' Trainer and accelerate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from control.cases import outputs
from torch import Tensor, nn

from unsmooth.control import adapt, adapter_of, bake, parameter_groups


def rows(count: int = 8) -> list[dict[str, Tensor]]:
    found = torch.randint(3, 50, (count, 7), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in found]


def language_model() -> nn.Module:
    from callbacks.test_trainers import language_model as build

    torch.manual_seed(0)
    return adapt(build().requires_grad_(False), "sharpening", rank=2, layers=[1])


def trainer(folder: Path, steps: int) -> Any:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=steps, per_device_train_batch_size=2, use_cpu=True, save_steps=2, learning_rate=0.05,
        logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, report_to=[],
        lr_scheduler_type="constant",
    )  # fmt: skip
    return transformers.Trainer(language_model(), arguments, train_dataset=rows())


def test_the_trainer_of_hugging_face_trains_saves_and_resumes(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", 4)
    before = {name: value.clone() for name, value in whole.model.state_dict().items()}
    whole.train()
    changed = [name for name, value in whole.model.state_dict().items() if not torch.equal(value, before[name])]
    assert changed == ["model.spectral_adapter.c", "model.spectral_adapter.psi"]
    trainer(tmp_path / "parts", 2).train()
    resumed = trainer(tmp_path / "parts", 4)
    resumed.train(resume_from_checkpoint=True)
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], value, rtol=1e-5, atol=1e-6)
    bake(whole.model).save_pretrained(tmp_path / "baked")
    plain = type(whole.model).from_pretrained(tmp_path / "baked")
    batch = {"input_ids": rows()[0]["input_ids"][None]}
    torch.testing.assert_close(outputs(plain, batch), outputs(whole.model.eval(), batch), rtol=0, atol=1e-6)


def test_accelerate_trains_it() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = language_model()
    loader = torch.utils.data.DataLoader(rows(), batch_size=2)
    optimiser = torch.optim.AdamW(parameter_groups(model, 0.0), lr=0.05)
    model, optimiser, loader = accelerator.prepare(model, optimiser, loader)
    losses = []
    for _ in range(2):
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimiser.step()
            optimiser.zero_grad()
            losses.append(float(loss.detach()))
    assert float(adapter_of(model).eigenvalues().detach().abs().min()) > 0
    assert losses[-1] < losses[3]
