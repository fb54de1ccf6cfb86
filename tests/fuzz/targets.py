"""What is fuzzed: each target turns a draw of random numbers into one input, and hands it to the library.

An attempt may work, or end in one of our own errors, which say what was expected. Anything else is a raw traceback.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import math
import random
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from fuzz.damage import ODD, damaged_bytes, damaged_json
from rich.console import Console

import unsmooth
from unsmooth.analysis import compare
from unsmooth.errors import UnsmoothError


class Target:
    """Builds its good inputs once, in a folder of its own; `attempt` makes a bad one of them and tries it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def attempt(self, draw: random.Random) -> None:
        raise NotImplementedError


def _vit() -> torch.nn.Module:
    import timm

    torch.manual_seed(0)
    return timm.models.VisionTransformer(img_size=16, patch_size=8, embed_dim=8, depth=2, num_heads=2, num_classes=3)


def _images() -> list[torch.Tensor]:
    return [torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))]


class Measurements(Target):
    """Files of `measure`: loaded, shown, compared, checked, saved."""

    @cached_property
    def good(self) -> Path:
        return unsmooth.measure(_vit(), _images(), tokens=["all", "patches"]).save(self.folder / "good.json")

    @cached_property
    def content(self) -> Any:
        return json.loads(self.good.read_text())

    def attempt(self, draw: random.Random) -> None:
        from unsmooth.cli.tables.measured import show
        from unsmooth.page.comparison import comparison_page

        path = self.folder / "bad.json"
        path.write_text(damaged_json(draw, self.content), encoding="utf-8", errors="surrogatepass")
        code = _command("check", path, "--max", "hfc_lfc=1e9@*", "--min", "cosine_similarity=-2")
        assert code in (0, 1, 2), code
        found = unsmooth.load_measurement(path)
        good = unsmooth.load_measurement(self.good)
        used: list[Callable[[], Any]] = [
            found.frame, found.change_by_kind, lambda: found.change_by_kind("residual"), lambda: repr(found),
            lambda: show(found, Console(file=io.StringIO(), width=100)), lambda: found.merge(good),
            lambda: compare(good, found), lambda: comparison_page(found, good, ("a", "b"), ["blocks.1.post"]),
            lambda: unsmooth.load_measurement(found.save(self.folder / "again.json")),
        ]  # fmt: skip
        for use in draw.sample(used, 4):
            with contextlib.suppress(UnsmoothError):
                use()


class Explanations(Target):
    """Files of `explain`: loaded, shown, summed up, saved."""

    @cached_property
    def content(self) -> Any:
        return unsmooth.explain(_vit(), _images()).to_json()

    def attempt(self, draw: random.Random) -> None:
        from unsmooth.cli.tables.explained import show

        path = self.folder / "bad.json"
        path.write_text(damaged_json(draw, self.content), encoding="utf-8", errors="surrogatepass")
        found = unsmooth.load_explanation(path)
        used: list[Callable[[], Any]] = [
            found.frame, found.head_frame, found.weight_frame, found.spectrum_frame, found.type_shares, found.by_layer,
            found.predictions, found.agreement, found.overshooting, lambda: repr(found),
            lambda: show(found, Console(file=io.StringIO(), width=100)),
            lambda: unsmooth.load_explanation(found.save(self.folder / "again.json")),
        ]  # fmt: skip
        for use in draw.sample(used, 4):
            with contextlib.suppress(UnsmoothError):
                use()


class Trained(Target):
    """Folders that `train` wrote: the configuration, and the weights beside it."""

    @cached_property
    def content(self) -> Any:
        from safetensors.torch import save_file

        save_file(_vit().state_dict(), self.folder / "model.safetensors")
        self.weights = (self.folder / "model.safetensors").read_bytes()
        sizes = {"img_size": 16, "patch_size": 8, "embed_dim": 8, "depth": 2, "num_heads": 2, "num_classes": 3}
        content = {"schema": "unsmooth-model/1", "library": "timm", "name": "vit_tiny_patch16_224", "arguments": sizes,
                   "mean": [0.5] * 3, "std": [0.5] * 3, "variant": "plain"}  # fmt: skip
        from unsmooth.training import RECIPES

        recipe = next(iter(RECIPES.values())).as_dict()
        return {**content, "recipe": recipe, "class_names": ["a", "b", "c"], "seed": 0, "run": "a-plain-0"}

    def attempt(self, draw: random.Random) -> None:
        content, weights = json.dumps(self.content), self.weights
        if draw.random() < 0.8:
            content = damaged_json(draw, self.content)
        else:
            weights = damaged_bytes(draw, weights)
        (self.folder / "config.json").write_text(content, encoding="utf-8", errors="surrogatepass")
        (self.folder / "model.safetensors").write_bytes(weights)
        for load in (unsmooth.load_model, _evaluated):
            with contextlib.suppress(UnsmoothError):
                load(self.folder)


def _evaluated(folder: Path) -> None:
    from unsmooth.training import load_trained
    from unsmooth.training.tasks.images.recipe import RECIPES

    next(iter(RECIPES.values())).from_dict(load_trained(folder)[1].get("recipe", {}))


class HuggingFace(Target):
    """Folders of Hugging Face: configuration, tokenizer, preprocessing, weights."""

    @cached_property
    def files(self) -> dict[str, dict[str, bytes]]:
        import transformers
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel
        from tokenizers.pre_tokenizers import Whitespace

        sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
        bert = transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes))
        vit = transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=8, **sizes))
        words = ["[PAD]", "[UNK]", "the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs"]
        tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = Whitespace()
        for name, model in (("bert", bert), ("vit", vit)):
            model.save_pretrained(self.folder / name)
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
        fast.save_pretrained(self.folder / "bert")
        transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(self.folder / "vit")
        return {
            name: {path.name: path.read_bytes() for path in (self.folder / name).iterdir()} for name in ("bert", "vit")
        }

    def attempt(self, draw: random.Random) -> None:
        from unsmooth.sources import open_data

        which = draw.choice(sorted(self.files))
        good = self.files[which]
        name = draw.choice(sorted(good))
        bad = damaged_bytes(draw, good[name])
        if name.endswith(".json") and draw.random() < 0.8:
            bad = damaged_json(draw, json.loads(good[name])).encode("utf-8", "surrogatepass")
        place = self.folder / "bad"
        place.mkdir(exist_ok=True)
        for old in place.iterdir():
            old.unlink()
        for other, content in good.items():
            (place / other).write_bytes(bad if other == name else content)
        if draw.random() < 0.1:
            (place / name).unlink()
        loaded = unsmooth.load_model(f"hf:{place}", random_init=draw.random() < 0.3)
        (self.folder / "text.txt").write_text("the quick brown fox jumps over the lazy dogs " * 20)
        data = "bundled" if loaded.modality == "images" else self.folder / "text.txt"
        unsmooth.measure(loaded.model, open_data(data, loaded, samples=2, max_length=8))


class Data(Target):
    """Files of data: text, jsonl, parquet, images, and folders of several."""

    @cached_property
    def files(self) -> dict[str, bytes]:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from PIL import Image

        texts = ["one", "two words", "", "é ü", "a longer text " * 30]
        records = [{"text": text, "id": i, "more": {"a": [1, 2]}} for i, text in enumerate(texts)]
        pq.write_table(pa.table({"text": texts, "label": list(range(5))}), self.folder / "texts.parquet")
        for kind in ("png", "jpeg", "gif", "tiff", "webp", "bmp", "ppm"):
            Image.effect_mandelbrot((20, 12), (-2, -1, 1, 1), 20).convert("RGB").save(self.folder / f"a.{kind}")
        blobs = [(self.folder / f"a.{kind}").read_bytes() for kind in ("png", "jpeg")]
        pictures = [{"bytes": blob, "path": None} for blob in blobs]
        pq.write_table(pa.table({"image": pictures}), self.folder / "b.parquet")
        (self.folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (self.folder / "a.txt").write_text("\n".join(texts))
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir()) if path.is_file()}

    def attempt(self, draw: random.Random) -> None:
        from unsmooth.sources.images import to_tensor
        from unsmooth.sources.loaded import ImageInput
        from unsmooth.sources.paths import find_source
        from unsmooth.sources.records import images, texts

        place = self.folder / "bad"
        place.mkdir(exist_ok=True)
        for old in place.iterdir():
            old.unlink()
        for name in draw.sample(sorted(self.files), draw.choice((1, 1, 1, 2))):
            bad = damaged_bytes(draw, self.files[name])
            if name.endswith(".jsonl") and draw.random() < 0.7:
                lines = [json.loads(line) for line in self.files[name].splitlines()]
                bad = "".join(damaged_json(draw, line) + "\n" for line in lines).encode("utf-8", "surrogatepass")
            (place / name).write_bytes(bad)
        source = find_source(place, draw.choice((None, None, "text", "image", "label", "")))
        source.count()
        if source.kind == "images":
            for image in images(source):
                to_tensor(image, ImageInput(16))
        else:
            for text in texts(source):
                text.encode()


class States(Target):
    """Files of weights, read for a timm model."""

    @cached_property
    def files(self) -> dict[str, bytes]:
        from safetensors.torch import save_file

        state = _vit().state_dict()
        save_file(state, self.folder / "good.safetensors")
        torch.save({"model": state, "epoch": 3}, self.folder / "good.pth")
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}

    def attempt(self, draw: random.Random) -> None:
        from unsmooth.sources.state_files import load_state, read_state

        name = draw.choice(sorted(self.files))
        bad = self.folder / f"bad{Path(name).suffix}"
        bad.write_bytes(damaged_bytes(draw, self.files[name]))
        load_state(_vit(), read_state(bad), str(bad))


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
            lambda: unsmooth.measure(_vit(), [one(self.PICTURES)]),
            lambda: unsmooth.explain(_vit(), [one(self.PICTURES)]),
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
        unsmooth.measure(_vit(), _images()).save(self.folder / "run.json")
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
                _command(*words)


def _command(*words: object) -> int:
    """The exit code of a command line, run here."""
    from unsmooth.cli import main

    before, sys.argv, said = sys.argv, ["unsmooth", *map(str, words)], io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            main()
    except SystemExit as stop:
        if "Traceback" in said.getvalue():
            raise RuntimeError(said.getvalue()) from None
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = before
    return 0


TARGETS: tuple[type[Target], ...] = (
    Measurements, Explanations, Trained, HuggingFace, Data, States, Tensors, Commands,
)  # fmt: skip
