"""Options that several verbs share, and what they open."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from unsmooth.cli.values import device_named, dtype_named, key_values
from unsmooth.errors import OptionError

if TYPE_CHECKING:
    from torch import nn

    from unsmooth.analysis.processes import Team
    from unsmooth.sources import Data, LoadedModel

_MODEL = typer.Argument(
    metavar="MODEL",
    help="zoo:NAME, timm:NAME, hf:NAME_OR_FOLDER[@REVISION][#PART], or a folder that `unsmooth train` wrote.",
)
_DATA = typer.Option(
    "--data",
    help="A file or folder of images, text (.txt), jsonl or parquet; `bundled` for the pictures or "
    "passages of books that ship with unsmooth; `random` for noise.",
)
Model = Annotated[str, _MODEL]
MaybeModel = Annotated[str | None, _MODEL]
DataPath = Annotated[str, _DATA]
MaybeDataPath = Annotated[str | None, _DATA]
Weights = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Load these weights (a local file, safetensors) into the timm: or hf: model."),
]
WeightsOfEach = Annotated[
    list[Path] | None,
    typer.Option(
        "--weights",
        metavar="FILE",
        help="Load these weights (a local file, safetensors) into a timm: or hf: model. Repeatable, once for each.",
    ),
]
RandomInit = Annotated[
    bool, typer.Option("--random-init", help="Use random weights instead of downloading pretrained ones.")
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model-option",
        metavar="KEY=VALUE",
        help="Argument of the model's constructor (img_size=224). Repeatable.",
    ),
]
Samples = Annotated[int | None, typer.Option(min=1, help="Use at most this many samples.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples per forward pass.")]
Column = Annotated[str | None, typer.Option(help="The parquet or jsonl column with the inputs.")]
MaxLength = Annotated[int, typer.Option(min=2, help="Tokens per text sample.")]
WholeRecords = Annotated[
    bool,
    typer.Option(
        "--whole-records",
        help="Use each record (a line of jsonl, a row of parquet, a whole .txt file) as one sample, cut or padded, "
        "instead of cutting all text into full windows.",
    ),
]
RankBudget = Annotated[
    str | None,
    typer.Option(
        metavar="TIMES|exact",
        help="Limit of the time of measuring, as a multiple of that of the forward passes. To keep it, "
        "effective rank is computed for every 2nd, 4th, … sample only. By default 2 if tokens and width "
        "exceed 288, otherwise exact.",
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps, or auto.")]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="float32, bfloat16, float16, float64, or stored (as in the file). By default stored with "
        "--device-map and for hf: models on a GPU, otherwise float32."
    ),
]
DeviceMap = Annotated[
    str | None,
    typer.Option(help="`auto` spreads the weights of an hf: model over GPUs, CPU memory and disk as they are read."),
]
HeadsInTurn = Annotated[
    bool | None,
    typer.Option(
        help="Compute attention matrices a few heads at a time. By default only where those of a batch take "
        "more than a GiB."
    ),
]
Layers = Annotated[
    str,
    typer.Option(
        help="all, first-half, second-half, alternate, a number (3; -1 is the last), a slice (2:10), a pattern"
        " for names of attention modules, or several of these, separated by commas."
    ),
]
Tokens = Annotated[
    str, typer.Option(help="Which tokens are counted, separated by commas: all, patches, content, no-outliers.")
]
Degenerate = Annotated[
    str,
    typer.Option(
        help="What to do with a sample on which a metric is undefined: `error` stops, `keep` counts it by convention."
    ),
]
Out = Annotated[Path | None, typer.Option(help="Write the result to this JSON file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@dataclass(frozen=True)
class DataOptions:
    """How data are read."""

    samples: Samples = None
    batch_size: BatchSize = 8
    column: Column = None
    max_length: MaxLength = 128
    whole_records: WholeRecords = False

    @property
    def reading(self) -> dict[str, Any]:
        """What `open_data` is asked."""
        return {"batch_size": self.batch_size, "samples": self.samples, "column": self.column,
                "max_length": self.max_length, "whole_records": self.whole_records}  # fmt: skip

    def open(self, path: str, loaded: LoadedModel) -> Data:
        """The batches for a model; if no row matches it, one is found on the first of them, and told of."""
        from unsmooth.sources import open_data

        batches = open_data(path, loaded, **self.reading)
        recognised(loaded.model, batches, loaded.reference)
        return batches


def recognised(model: nn.Module, batches: Iterable[Any], reference: str) -> None:
    """See that some row matches the model: one is found, and told of, where none is registered."""
    from unsmooth.sources.recognise import found_said, recognise

    row = recognise(model, batches)
    if row is not None and os.environ.get("RANK", "0") == "0":
        typer.echo(f"{reference}: {found_said(row)}", err=True)


@dataclass(frozen=True)
class PlaceOptions:
    """Where a model is kept, and in which dtype."""

    device: Device = "auto"
    dtype: Dtype = None
    device_map: DeviceMap = None

    def open(
        self,
        reference: str,
        weights: Path | None = None,
        random_init: bool = False,
        model_option: Sequence[str] | None = None,
    ) -> LoadedModel:
        """The model behind a reference."""
        from unsmooth.sources import load_model

        where = device_named(self.device)
        dtype = self.dtype
        if dtype is None:
            kept = self.device_map is not None or (where.type == "cuda" and reference.startswith("hf:"))
            dtype = "stored" if kept else "float32"
        what = dtype_named(dtype)
        if where.type == "cpu" and dtype in ("bfloat16", "float16"):
            # Some virtual machines advertise AMX but cannot run it: the first product would end the process.
            os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
        return load_model(
            reference,
            weights=weights,
            random_init=random_init,
            options=key_values(model_option or []),
            device=where,
            dtype=what,
            device_map=self.device_map,
        )

    def of(self, team: Team) -> Self:
        """The same on the device of this process, where several were launched."""
        return replace(self, device=team.device(self.device))


@dataclass(frozen=True)
class ModelOptions(PlaceOptions):
    """How a model is made, and where it is kept."""

    weights: Weights = None
    random_init: RandomInit = False
    model_option: ModelOption = None

    def load(self, reference: str) -> LoadedModel:
        """The model behind a reference, made so."""
        return self.open(reference, self.weights, self.random_init, self.model_option)


@dataclass(frozen=True)
class ModelsOptions(PlaceOptions):
    """The same for several models."""

    weights: WeightsOfEach = None
    random_init: RandomInit = False
    model_option: ModelOption = None

    def load_each(self, references: Sequence[str]) -> Iterator[LoadedModel]:
        """Several models, each opened when it is asked for.

        Weights, constructor options and a device map are for those that come from a library, not from the zoo or a
        trained folder.
        """
        bare = [reference for reference in references if reference.startswith(("timm:", "hf:"))] or list(references)
        if self.weights and len(self.weights) != len(bare):
            raise OptionError(
                f"--weights is given {len(self.weights)} times for {len(bare)} models that could take it "
                f"({', '.join(bare)}): give it once for each, in their order"
            )
        files = iter(self.weights or ())
        return (
            self.open(reference, next(files, None), self.random_init, self.model_option)
            if reference in bare
            else replace(self, device_map=None).open(reference)
            for reference in references
        )


def refuse_several(what: str, instead: str = "") -> None:
    """OptionError under a launcher, where each process would do all of the work."""
    size = os.environ.get("WORLD_SIZE", "1")
    if "RANK" in os.environ and size not in ("", "1"):
        raise OptionError(f"{what} by one process, and {size} were launched: start it without a launcher{instead}")


def command_line() -> str:
    """The command as it was given, to be kept with its result."""
    return shlex.join(["unsmooth", *sys.argv[1:]])
