"""Odd tensors and odd command lines."""

from __future__ import annotations

import contextlib
import inspect
import math
import random
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from fuzz.damage import ODD
from fuzz.target import Target, command, images, vit

import unsmooth


class Tensors(Target):
    """Odd tensors (sparse, nested, without values or width, of other dtypes) where features and weights belong."""

    FEATURES = ((2, 5, 4), (5, 4), (1, 4), (2, 1, 4), (2, 5, 0), (0, 5, 4), (2, 0, 4), (4,), (), (1, 1, 1))
    SQUARES = ((4, 4), (1, 1), (0, 0), (2, 4, 4), (2, 2, 4, 4), (4, 5))
    PICTURES = ((2, 3, 16, 16), (1, 3, 16, 16), (0, 3, 16, 16), (2, 3, 8, 16), (2, 1, 16, 16), (3, 16, 16))
    IDS = ((2, 5), (1, 1), (2, 0), (0, 5), (5,), (2, 5, 3), (2, 600))

    def tensor(self, draw: random.Random, shapes: tuple[tuple[int, ...], ...]) -> Any:
        """Of a usual or an odd shape, with usual or odd numbers, kept in a usual or an odd way."""
        shape = shapes[0] if draw.random() < 0.5 else draw.choice(shapes)
        x = torch.rand(shape, generator=torch.Generator().manual_seed(draw.randrange(1000)))
        x = x * draw.choice((1, 1, 1, 0, 1e300, 1e-300, math.nan, math.inf, -1))
        if shapes is self.IDS:
            x = (19 * x.nan_to_num(0)).clamp(-5, 30).long()
        makers: list[Callable[[], Any]] = [
            x.to_sparse, x.bool, lambda: x.to(torch.complex64), x.int, x.half, x.bfloat16, x.double,
            lambda: x.to("meta"), lambda: torch.nested.nested_tensor([torch.rand(3, 4), torch.rand(5, 4)]),
            lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), lambda: x.to(torch.float8_e4m3fn),
            x.to_sparse_csr, lambda: draw.choice(ODD), x.numpy, x.tolist, lambda: x.softmax(-1), lambda: x.mT,
            lambda: x.expand(3, *x.shape), x.requires_grad_,
        ]  # fmt: skip
        try:
            return draw.choice(makers)() if draw.random() < 0.5 else x
        except (RuntimeError, ValueError, IndexError):
            return x

    def attempt(self, draw: random.Random) -> None:
        from unsmooth import metrics, theory

        def one(shapes: tuple[tuple[int, ...], ...]) -> Any:
            return self.tensor(draw, shapes)

        public = [getattr(metrics, name) for name in sorted(metrics.__all__)]
        features = [f for f in public if inspect.isfunction(f) and "mask" in inspect.signature(f).parameters]
        kept = draw.choice((None, None, torch.ones(2, 5, dtype=torch.bool), torch.ones(2, 5), one(self.FEATURES)))
        functions: list[Callable[[], Any]] = [
            lambda: draw.choice(features)(one(self.FEATURES), mask=kept),
            lambda: theory.dominance(one(self.SQUARES), one(self.SQUARES)),
            lambda: theory.layer_exponent(one(self.SQUARES), one(self.SQUARES)),
            lambda: theory.limit(one(self.SQUARES), one(self.SQUARES), one(self.SQUARES)),
            lambda: theory.simulate(one(self.SQUARES), one(self.SQUARES), one(self.SQUARES), layers=3),
            lambda: unsmooth.measure(vit(), [one(self.PICTURES)]),
            lambda: unsmooth.explain(vit(), [one(self.PICTURES)]),
            lambda: unsmooth.measure(_bert(), [{"input_ids": one(self.IDS), "attention_mask": one(self.IDS)}]),
            lambda: unsmooth.explain(_bert(), [{"input_ids": one(self.IDS)}]),
        ]
        draw.choice(functions)()


def _bert() -> torch.nn.Module:
    import transformers

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes))


class Commands(Target):
    """Command lines with odd values for every option, on models and files that are there, damaged or absent."""

    @cached_property
    def arguments(self) -> dict[str, list[str]]:
        (self.folder / "empty").mkdir()
        (self.folder / "file").write_text("x")
        unsmooth.measure(vit(), images()).save(self.folder / "run.json")
        run, absent, file = (str(self.folder / name) for name in ("run.json", "absent.json", "file"))
        model = ["timm:vit_tiny_patch16_224", "--random-init", "--model-option", "img_size=16", "--model-option",
                 "patch_size=8", "--model-option", "embed_dim=8", "--model-option", "num_heads=2", "--model-option",
                 "depth=1", "--data", "bundled", "--samples", "2"]  # fmt: skip
        return {
            "measure": model,
            "explain": model,
            "report": [*model, "--explain-inputs", "0", "--out", str(self.folder / "page.html")],
            "compare": [run, run],
            "check": [run, "--max", "hfc_lfc=1"],
            "simulate": ["--seeds", "1", "--layers", "2", "--tokens", "6", "--dim", "4"],
            "train": ["cifar100", "--data", absent],
            "evaluate": [file, "--data", absent],
            "reproduce": [absent],
        }

    @cached_property
    def options(self) -> list[str]:
        """Of all verbs: one that belongs to another is odd too."""
        from typer.main import get_command

        from unsmooth.cli.app import app

        verbs = get_command(app).commands.values()  # type: ignore[attr-defined]
        return sorted({name for verb in verbs for option in verb.params for name in option.opts if name[0] == "-"})

    def attempt(self, draw: random.Random) -> None:
        verb = draw.choice(sorted(self.arguments))
        words = [verb, *self.arguments[verb]]
        places = [str(self.folder / name) for name in ("empty", "file", "absent", "run.json", "x" * 300)]
        values = [str(odd) for odd in ODD] + places + ["all", "paper", "residual", "1:2", "0,1", "hfc_lfc=0@embed"]
        for _ in range(draw.choice((1, 1, 2))):
            how = draw.randrange(4)
            value = draw.choice(values).replace("\x00", "0").encode("utf-8", "replace").decode()
            if how == 0 and len(words) > 1:
                words[draw.randrange(1, len(words))] = value
            elif how == 1 and len(words) > 1:
                del words[draw.randrange(1, len(words))]
            else:
                words += [draw.choice(self.options), value]
        if not any(word.startswith("/dev/") for word in words):
            here = self.folder / "a" / "b" / "here"  # what is written to `x` or `../../x` stays in the folder
            here.mkdir(parents=True, exist_ok=True)
            with contextlib.chdir(here):
                command(*words)
