"""A model seen as layers and points, whatever its family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.errors import UnknownModelError, WeightsError
from unsmooth.models.family import BLOCK_POINTS, AttentionRow, Family
from unsmooth.models.places import check_places
from unsmooth.models.registry import blocks_of, match
from unsmooth.models.storage import onloaded
from unsmooth.models.taps import Spot, find, find_spot
from unsmooth.models.weights import HeadWeights, read_weights, shape_of, slot_of, write_weights
from unsmooth.models.wrappers import unwrapped

_NORMS = ("norm1", "norm2", "final_norm")


@dataclass(frozen=True, eq=False)
class LayerView:
    """One pass through one block; a shared block has one of these per pass."""

    index: int
    block: nn.Module
    family: Family

    @property
    def name(self) -> str:
        return f"layer {self.index}"

    @property
    def ends(self) -> tuple[nn.Module, nn.Module]:
        """The modules that begin and end a pass: the block itself, or those of its states if it is a list of parts."""
        if is_called(self.block):
            return self.block, self.block
        first, last = self.spot("pre"), self.spot("post")
        assert first is not None
        assert last is not None
        return first.module, last.module

    @property
    def attention_row(self) -> AttentionRow:
        """Where the family keeps its attention; WeightsError if its row does not say."""
        if self.family.attention is None:
            raise WeightsError(
                f"family {self.family.name!r} gives no attention weights or matrices: "
                "its row has no AttentionRow (see register_family; find_family leaves it out where no weights "
                "reproduce the attention, or its norm stands elsewhere in some blocks). Its models can be measured, "
                "neither explained nor controlled"
            )
        return self.family.attention

    @property
    def attention(self) -> nn.Module:
        """The attention module."""
        module = find(self.block, self.attention_row.module)
        if not isinstance(module, nn.Module):
            raise WeightsError(
                f"{self.name} of family {self.family.name!r} has no attention module at {self.attention_row.module!r}"
            )
        return module

    @property
    def sink(self) -> bool:
        """Whether something keeps the rows of A from summing to 1: a share of the softmax, a map across heads."""
        return find(self.block, self.attention_row.sink) is not None

    @property
    def heads(self) -> int:
        """Query heads."""
        heads = find(self.block, self.attention_row.heads)
        if not isinstance(heads, int):
            raise WeightsError(f"{self.name}: expected a number of heads at {self.attention_row.heads!r}")
        return heads

    @property
    def kv_heads(self) -> int:
        """Key-value heads; fewer than query heads under grouped queries."""
        heads = find(self.block, self.attention_row.kv_heads)
        return heads if isinstance(heads, int) else self.heads

    @property
    def width(self) -> int:
        """The model's dimension d."""
        return self._projection[0]

    @property
    def key_dim(self) -> int:
        """Features of one value head."""
        return self._projection[1] // self.heads

    @property
    def _projection(self) -> tuple[int, int]:
        found = slot_of(self.block, self.attention_row.proj)
        if found is None:
            raise WeightsError(f"{self.name} of family {self.family.name!r} has no output projection")
        slot, owner, name = found
        rows, columns = shape_of(owner, name)
        return (columns, rows) if slot.transposed else (rows, columns)

    def weights(self) -> HeadWeights:
        """W_V and W_proj per head, with the normalisations around them."""
        with onloaded(self.block):
            return read_weights(self)

    def write(self, w_v: Float[Tensor, "head dim key"], w_proj: Float[Tensor, "head key dim"]) -> None:
        """Put W_V and W_proj back into the module; biases stay."""
        write_weights(self, w_v, w_proj)

    def spot(self, point: str) -> Spot | None:
        """Where this layer's `point` is taken, if it has it."""
        spot = find_spot(self.block, self.family.block_tap(point))
        return None if spot is None or _is_missing_norm(point, spot) else spot


@dataclass(frozen=True, eq=False)
class ModelView:
    """A model, its backbone, and where its layers and points are. Made by `view`; holds no activations."""

    model: nn.Module
    backbone: nn.Module
    family: Family
    layers: tuple[LayerView, ...]
    points: tuple[str, ...]
    prefix_tokens: int
    suffix_tokens: int
    width: int
    causal: bool
    batch_first: bool

    def __repr__(self) -> str:
        """Not the modules, which fill screens."""
        return f"ModelView({type(self.model).__name__}: {self.family.name}, {len(self.layers)} layers of {self.width})"

    def spot(self, point: str) -> Spot | None:
        """Where a point outside the blocks (`embed`, `final_norm`) is taken, if the model has it."""
        return _backbone_spot(self.family, self.backbone, point)


def is_called(block: nn.Module) -> bool:
    """Whether a block has a forward of its own: a list of parts has none, the model calls them one by one."""
    return type(block).forward is not nn.Module.forward


def module_of(model: object) -> nn.Module:
    """The module inside wrappers; UnknownModelError for what is none."""
    if not isinstance(model, nn.Module):
        hint = "; it holds one: give its .model" if isinstance(getattr(model, "model", None), nn.Module) else ""
        if isinstance(model, str):
            hint = ": load it first, as unsmooth.load_model('hf:NAME').model"
        elif isinstance(model, Mapping):
            hint = ": weights alone do not say how they are used; load them into their model first"
        raise UnknownModelError(f"expected a torch module, got {type(model).__name__}{hint}")
    return unwrapped(model)


def view(model: nn.Module) -> ModelView:
    """See a model as layers and points. Cheap: no forward pass. Of a compiled or DDP wrapper, the model inside.

    >>> encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3)
    >>> v = view(encoder)
    >>> v
    ModelView(TransformerEncoder: torch-encoder-post, 3 layers of 8)
    >>> v.points[:3]
    ('blocks.0.pre', 'blocks.0.attn', 'blocks.0.attn_sum')
    """
    model = module_of(model)
    _, backbone, family = match(model)
    return view_as(model, backbone, family)


def view_as(model: nn.Module, backbone: nn.Module, family: Family) -> ModelView:
    """See a model by a row that need not be registered."""
    layers = tuple(LayerView(i, block, family) for i, block in enumerate(blocks_of(family, backbone)))
    check_places(family, backbone, [layer.block for layer in layers])
    first = layers[0].block
    return ModelView(
        model=model,
        backbone=backbone,
        family=family,
        layers=layers,
        points=tuple(_points(family, backbone, layers)),
        prefix_tokens=_count(family.prefix, backbone),
        suffix_tokens=_count(family.suffix, backbone),
        width=_width(family, backbone, layers[0]),
        causal=bool(find(first, family.causal)) if isinstance(family.causal, str) else family.causal,
        batch_first=find(first, family.batch_first) is not False if family.batch_first else True,
    )


def _points(family: Family, backbone: nn.Module, layers: tuple[LayerView, ...]) -> Iterator[str]:
    if _backbone_spot(family, backbone, "embed") is not None:
        yield "embed"
    for layer in layers:
        for point in BLOCK_POINTS[family.placement]:
            if layer.spot(point) is not None:
                yield f"blocks.{layer.index}.{point}"
    if _backbone_spot(family, backbone, "final_norm") is not None:
        yield "final_norm"


def _backbone_spot(family: Family, backbone: nn.Module, point: str) -> Spot | None:
    spot = find_spot(backbone, {"embed": family.embed, "final_norm": family.final_norm}[point])
    return None if spot is None or _is_missing_norm(point, spot) else spot


def _is_missing_norm(point: str, spot: Spot) -> bool:
    """An Identity in a normalisation's place is no normalisation: the point is left out, not aliased."""
    return point in _NORMS and isinstance(spot.module, nn.Identity)


def _count(parts: tuple[int | str, ...], backbone: nn.Module) -> int:
    counts = [part if isinstance(part, int) else find(backbone, part) for part in parts]
    return sum(int(count or 0) for count in counts)


def _width(family: Family, backbone: nn.Module, layer: LayerView) -> int:
    width = find(backbone, family.width)
    if isinstance(width, int):
        return width
    if family.attention is not None:
        return layer.width
    raise UnknownModelError(
        f"family {family.name!r} gives no width: expected an integer attribute at {family.width!r} of "
        f"{type(backbone).__name__}"
    )
