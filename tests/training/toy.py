"""A task that is no image classification: regression on a stream of memory-mapped shards, counted in steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unsmooth.sources.trained import file_hash
from unsmooth.training import Optimisation, Recipe, Run, Task
from unsmooth.training.engine.observe import observe
from unsmooth.training.engine.schedule import triangle
from unsmooth.training.engine.task import Rows

TOKENS, WIDTH, SAMPLES = 5, 8, 56  # seven batches of 8 an epoch: chunks of 5 steps end inside epochs


@dataclass(frozen=True)
class ToyRecipe(Recipe):
    lr: float = 0.01
    batch_size: int = 8
    steps: int = 20
    dropout: float = 0.2

    def open(self, run: Run, data: str | Path, device: torch.device, rank: int = 0, world: int = 1) -> ToyTask:
        return ToyTask(self, run, Path(data), device, rank, world)

    def standard(self) -> ToyRecipe:
        return ToyRecipe("toy")


class ToyTask(Task):
    chunk, every = 5, 10

    def __init__(self, recipe: ToyRecipe, run: Run, data: Path, device: torch.device, rank: int, world: int) -> None:
        torch.manual_seed(run.seed)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, recipe.dropout, batch_first=True, norm_first=True)
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.model = run.control.apply(model, run.std, run.seed).to(device)
        self.shards = [np.load(file, mmap_mode="r") for file in sorted(data.glob("*.npy"))]
        self.data_hash = ",".join(str(file_hash(file))[:8] for file in sorted(data.glob("*.npy")))
        self.recipe, self.seed, self.rank, self.world, self.total = recipe, run.seed, rank, world, recipe.steps
        self.optimisation = Optimisation(clip_norm=1.0, betas=(0.9, 0.98))

    def sample(self, position: int) -> np.ndarray:
        """The sample at a position of the endless stream: every epoch in an order of its own."""
        epoch, place = divmod(position, SAMPLES)
        index = np.random.default_rng((self.seed, epoch)).permutation(SAMPLES)[place]
        shard, row = divmod(int(index), len(self.shards[0]))
        return np.asarray(self.shards[shard][row])

    def stream(self, step: int) -> Iterator[Rows]:
        size, share = self.recipe.batch_size, self.recipe.batch_size // self.world
        while True:
            steps = range(step, (step // self.chunk + 1) * self.chunk)
            mine = [[s * size + self.rank * share + i for i in range(share)] for s in steps]
            yield {"x": torch.from_numpy(np.stack([np.stack([self.sample(p) for p in row]) for row in mine]))}
            step = steps.stop

    def loss(self, *batch: Tensor) -> Tensor:
        (x,) = batch
        return (self.model(x) - x.flip(1)).square().mean()

    def rates(self, total: int) -> Tensor:
        return triangle(self.recipe.lr, total)

    def evaluate(self, model: nn.Module, final: bool = False) -> dict[str, Any]:
        x = torch.from_numpy(np.array(self.shards[0][:8]))
        model.eval()
        with torch.no_grad():
            return {"loss": float((model(x) - x.flip(1)).square().mean())}

    def observe(self, model: nn.Module) -> dict[str, Any]:
        return observe(model, [torch.from_numpy(np.array(self.shards[0][:2]))])

    def save(self, model: nn.Module, folder: Path, about: dict[str, Any]) -> str:
        torch.save(model.state_dict(), folder / "model.safetensors")
        (folder / "config.json").write_text("{}")
        return str(file_hash(folder / "model.safetensors"))


def write_shards(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(2):
        values = np.random.default_rng(number).standard_normal((SAMPLES // 2, TOKENS, WIDTH), dtype=np.float32)
        np.save(folder / f"{number}.npy", values)
    return folder
