"""Damaged files, of every kind that we read."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from fuzz.damage import damaged_bytes, damaged_json
from fuzz.target import Target, command, images, vit
from rich.console import Console

import unsmooth
from unsmooth.analysis import compare
from unsmooth.errors import UnsmoothError


class Measurements(Target):
    """Files of `measure`: loaded, shown, compared, checked, saved."""

    @cached_property
    def good(self) -> Path:
        return unsmooth.measure(vit(), images(), tokens=["all", "patches"]).save(self.folder / "good.json")

    @cached_property
    def content(self) -> Any:
        return json.loads(self.good.read_text())

    def attempt(self, draw: random.Random) -> None:
        from unsmooth.cli.tables.measured import show
        from unsmooth.page.comparison import comparison_page

        path = self.folder / "bad.json"
        path.write_text(damaged_json(draw, self.content), encoding="utf-8", errors="surrogatepass")
        code = command("check", path, "--max", "hfc_lfc=1e9@*", "--min", "cosine_similarity=-2")
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
        return unsmooth.explain(vit(), images()).to_json()

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

        save_file(vit().state_dict(), self.folder / "model.safetensors")
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

        state = vit().state_dict()
        save_file(state, self.folder / "good.safetensors")
        torch.save({"model": state, "epoch": 3}, self.folder / "good.pth")
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}

    def attempt(self, draw: random.Random) -> None:
        from unsmooth.sources.state_files import load_state, read_state

        name = draw.choice(sorted(self.files))
        bad = self.folder / f"bad{Path(name).suffix}"
        bad.write_bytes(damaged_bytes(draw, self.files[name]))
        load_state(vit(), read_state(bad), str(bad))
