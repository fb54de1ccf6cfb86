"""Measurements of several models along their depth, for the figures that show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from unsmooth.analysis import Measurement, load_measurement, measure
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.errors import DataError, OptionError
from unsmooth.metrics.registry import METRICS
from unsmooth.paper.item import Context, Table, Value
from unsmooth.paper.pretrained import load_published
from unsmooth.prose import counted
from unsmooth.sources import LoadedModel, load_model, open_data
from unsmooth.sources.provenance import default_device
from unsmooth.sources.trained import zoo_models

RANDOM = "timm:vit_tiny_patch16_224"


def measured_models(context: Context, metrics: str = "paper", points: str = "residual") -> dict[str, Measurement]:
    """The models that the user named, measured on their data; a RUN.json is taken as it is."""
    references = all_named(context.models)
    data = spread(context.data or ("bundled",), len(references))
    return {
        name: _measured(reference, path, context, metrics, points)
        for (name, reference), path in zip(references, data, strict=True)
    }


def shipped_models(text: bool = False) -> tuple[str, ...]:
    """References of the models that come with the project, `NAME=zoo:NAME`; empty when there are none."""
    return tuple(f"{name}=zoo:{name}" for name, reads in zoo_models().items() if reads == text)


def chosen_models(context: Context, shipped: Sequence[str] | None = None) -> tuple[str, ...]:
    """The models that the user named, or those that come with the project; DataError where there are neither."""
    models = context.models or tuple(shipped_models() if shipped is None else shipped)
    if not models:
        raise DataError("no trained model is here: train one (`unsmooth train cifar100 …`) and name it with --model")
    return models


def random_model(context: Context, metrics: str = "paper") -> Measurement:
    """ViT-Ti with random weights: what there is before any training."""
    torch.manual_seed(context.seed)
    loaded = load_model(RANDOM, random_init=True, device=device_of(context))
    return _measure(loaded, (context.data or ("bundled",))[0], context, metrics, "residual")


def ends_table(measurements: dict[str, Measurement], title: str) -> Table:
    """Each metric at the input, halfway and at the end of the residual stream."""
    rows: list[list[Value]] = []
    for name, measurement in measurements.items():
        layers = measurement.about.model.layers
        policy = measurement.about.settings.tokens[0]
        measured = measurement.about.settings.points
        start = next((p for p in ("embed", "blocks.0.pre") if p in measured), "blocks.0.post")
        points = (start, f"blocks.{(layers - 1) // 2}.post", f"blocks.{layers - 1}.post")
        for metric in measurement.about.settings.metrics:
            begin, middle, end = (measurement.cells[Cell(point, metric, policy)].mean for point in points)
            rows.append([name, layers, METRICS[metric].title, begin, middle, end, f"{end - begin:+.4g}"])
    return Table(title, ["model", "layers", "metric", "input", "halfway", "end", "change"], rows)


def about(measurements: dict[str, Measurement]) -> dict[str, object]:
    """Where the numbers come from."""
    return {
        name: {
            **{part: m.about.to_json()[part] for part in ("model", "data", "versions")},
            "samples": m.samples,
        }
        for name, m in measurements.items()
    }


def data_names(measurements: dict[str, Measurement]) -> str:
    """The data of all measurements and how much of it, each once."""
    said = (f"{m.about.data.reference or '?'} ({counted(m.samples, 'sample')})" for m in measurements.values())
    return ", ".join(dict.fromkeys(said))


def _measured(reference: str, data: str, context: Context, metrics: str, points: str) -> Measurement:
    if reference.endswith(".json"):
        return load_measurement(reference)
    return _measure(load_published(reference, device_of(context)), data, context, metrics, points)


def _measure(loaded: LoadedModel, data: str, context: Context, metrics: str, points: str) -> Measurement:
    batches = open_data(data, loaded, batch_size=context.batch_size, samples=context.samples)
    return measure(loaded, batches, metrics, points=points)


def named(text: str) -> tuple[str, str]:
    """Name and reference of a model given as [NAME=]REFERENCE.

    >>> named("Mine=zoo:plain"), named("runs/a.json")
    (('Mine', 'zoo:plain'), ('a', 'runs/a.json'))
    """
    name, equals, reference = text.partition("=")
    return (name, reference) if equals else (Path(text).stem if text.endswith(".json") else text, text)


def all_named(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Names and references of all models; two of one name are refused, or one would be lost."""
    found = [named(text) for text in texts]
    check_different(name for name, _ in found)
    return found


def check_different(names: Iterable[str]) -> None:
    """OptionError if two models have one name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise OptionError(f"several models are called {', '.join(twice)}: give each a name, --model NAME=REFERENCE")


def spread(data: Sequence[str], models: int) -> Sequence[str]:
    """One path for each model: the one for all repeated, or as many as there are models."""
    if len(data) not in (1, models):
        raise OptionError(f"expected one --data for all models or one for each of {models}, got {len(data)}")
    return data if len(data) == models else list(data) * models


def device_of(context: Context) -> str:
    """The device asked for; `auto` takes the GPU when there is one."""
    return default_device() if context.device == "auto" else context.device
