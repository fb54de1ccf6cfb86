"""What a result says of itself: model, data, settings, definitions, versions, command and date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Self, TypeVar

from torch import nn

from unsmooth.errors import WeightsError
from unsmooth.models import ModelView
from unsmooth.models.family import Placement, written
from unsmooth.models.registry import is_own
from unsmooth.models.storage import home
from unsmooth.models.wrappers import compiled_part, unwrapped
from unsmooth.sources.batches import Data
from unsmooth.sources.loaded import LoadedModel
from unsmooth.sources.provenance import library_versions
from unsmooth.sources.typed_json import from_plain, to_plain

Settings = TypeVar("Settings")


def module_of(model: nn.Module | LoadedModel) -> nn.Module:
    """The model itself, where it came with its reference and tokenizer, or inside what torch.compile made of it."""
    found: nn.Module = unwrapped(model.model if isinstance(model, LoadedModel) else model)
    return found


def tokenizer_of(model: nn.Module | LoadedModel, given: Any = None) -> Any:
    """The tokenizer that was given, or else the one that a model came with."""
    return model.tokenizer if given is None and isinstance(model, LoadedModel) else given


def is_compiled(model: nn.Module | LoadedModel) -> bool:
    """Whether torch.compile made code of any part, which hooks cannot see into."""
    return compiled_part(model.model if isinstance(model, LoadedModel) else model) is not None


THROUGH_THE_ORIGINAL = "the model is compiled: here it ran as the original module, which hooks can see into"


@dataclass(frozen=True)
class Origin:
    """Where a model and its data come from, as far as this is known, and the command; it is saved with a result."""

    model: str | None = None
    weights: str | None = None  # SHA-256
    data: str | None = None
    kind: str | None = None  # images or text
    command: str | None = None

    @classmethod
    def of(cls, model: nn.Module | LoadedModel, batches: object = None, command: str | None = None) -> Self:
        """What loading by reference knows; a model and tensors in memory have no origin."""
        reference, weights = (model.reference, model.weights_hash) if isinstance(model, LoadedModel) else (None, None)
        data, kind = (batches.reference, batches.kind) if isinstance(batches, Data) else (None, None)
        return cls(reference, weights, data, kind, command)


@dataclass(frozen=True)
class ModelFacts:
    """Which model it was."""

    class_name: str = field(metadata={"key": "class"})
    family: str
    placement: Placement  # of the normalisation
    layers: int
    width: int
    dtype: str
    device: str
    heads: int | None = None
    key: int | None = None  # the width of a head's keys
    causal: bool | None = None
    reference: str | None = None
    weights: str | None = None
    row: str | None = None  # that does not come with unsmooth: found, or registered by hand

    @classmethod
    def of(cls, v: ModelView, origin: Origin) -> Self:
        """What can be read off a model."""
        device, dtype = home(v.model)
        heads, key = _heads(v)
        return cls(
            class_name=type(v.model).__qualname__,
            family=v.family.name,
            placement=v.family.placement,
            layers=len(v.layers),
            width=v.width,
            dtype=str(dtype).removeprefix("torch."),
            device=str(device),
            heads=heads,
            key=key,
            causal=v.causal,
            reference=origin.model,
            weights=origin.weights,
            row=written(v.family) if is_own(v.family) else None,
        )

    @property
    def name(self) -> str:
        """Its reference, or what it is."""
        return self.reference or self.class_name


@dataclass(frozen=True)
class DataFacts:
    """What the model was run on."""

    batches: int = 0
    inputs: int | None = None
    reference: str | None = None
    kind: str | None = None


@dataclass(frozen=True)
class Definitions:
    """The full text of every definition that the numbers follow."""

    metrics: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    changes: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class About(Generic[Settings]):
    """Everything that says what the numbers of a result mean and where they come from; saved with them."""

    model: ModelFacts
    data: DataFacts
    settings: Settings
    definitions: Definitions
    versions: dict[str, str]
    created: str
    command: str | None = None

    @classmethod
    def of(
        cls,
        v: ModelView | ModelFacts,
        settings: Settings,
        definitions: Definitions,
        data: DataFacts,
        origin: Origin,
    ) -> About[Settings]:
        """The stamp on a result that is made now."""
        return About(
            model=v if isinstance(v, ModelFacts) else ModelFacts.of(v, origin),
            data=DataFacts(data.batches, data.inputs, origin.data, origin.kind),
            settings=settings,
            definitions=definitions,
            versions=library_versions(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=origin.command,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data, a part of the result's file."""
        plain: dict[str, Any] = to_plain(self)
        plain["definitions"] = {group: texts for group, texts in plain["definitions"].items() if texts}
        return plain

    def heading(self, schema: str, partial: bool, notes: list[str], **counts: int) -> dict[str, Any]:
        """How the file of every result begins."""
        return {"schema": schema, "partial": partial, **counts, **self.to_json(), "notes": notes}

    @classmethod
    def from_json(cls, found: Mapping[str, Any], settings: type[Settings]) -> About[Settings]:
        """The inverse of to_json; CheckpointError where a value is missing or of another type."""
        return from_plain(cls, found, settings=settings)


def _heads(v: ModelView) -> tuple[int | None, int | None]:
    try:
        return v.layers[0].heads, v.layers[0].key_dim
    except WeightsError:  # a family that is measured only
        return None, None
