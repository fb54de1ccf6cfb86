"""A family of models is one row: where its points, weights and attention matrices are. No logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, cast

from torch import nn

from unsmooth.errors import OptionError
from unsmooth.models.taps import Paths, Tap, Taps, into, out

Placement = Literal["pre", "post", "parallel", "parallel-shared"]

# Points of a block in the order of the forward pass, by where the normalisation sits. In a parallel block attention and
# MLP both read the block's input, post = pre + attn + mlp, and the stream between them (mid) does not exist; each has
# its own normalisation there, or one is shared.
BLOCK_POINTS: dict[Placement, tuple[str, ...]] = {
    "pre": ("pre", "norm1", "attn", "mid", "norm2", "mlp", "post"),
    "post": ("pre", "attn", "attn_sum", "mid", "mlp", "mlp_sum", "post"),
    "parallel": ("pre", "norm1", "attn", "norm2", "mlp", "post"),
    "parallel-shared": ("pre", "norm1", "attn", "mlp", "post"),
}


@dataclass(frozen=True)
class Slot:
    """A linear map's weight and bias, or the `part`-th of `of` equal parts of a fused one.

    Where the parts are not equal (queries of more heads, an MLP in the same weight), a negative `part` counts from
    the end in parts of the values' size: -1 is the last, whatever stands before it. `groups` says that the parts
    are repeated: a number of times, or "kv_heads" where every value head's q, k and v stand side by side.

    `path` leads from the block to the module that holds them. `transposed` says that the weight is
    stored as (in, out), as GPT-2's Conv1D does, not as (out, in). A bias kept whole beside a fused
    weight has `bias_fused=False`.
    """

    path: str
    part: int = 0
    of: int = 1
    groups: int | Literal["kv_heads"] = 1
    weight: str = "weight"
    bias: str = "bias"
    transposed: bool = False
    bias_fused: bool = True


@dataclass(frozen=True)
class Maps:
    """How a block shows its attention matrices: a tap, and what must be set for it to carry them."""

    tap: Taps = ()
    fused: bool = False  # the module calls F.scaled_dot_product_attention: its matrix is formed from q and k
    settings: Mapping[str, object] = field(default_factory=dict)  # attributes of the block
    backbone_settings: Mapping[str, object] = field(default_factory=dict)
    call_with: Mapping[str, object] = field(default_factory=dict)  # arguments of the attention's call


def sdpa_maps() -> Maps:
    """The module calls `F.scaled_dot_product_attention` once; nothing else needs to be said."""
    return Maps(fused=True)


def eager_maps(*modules: str) -> Maps:
    """Hugging Face's attention returns its matrix as second output, under the eager implementation only."""
    return Maps(
        tuple(out(module, item=1) for module in modules),
        settings={f"{module}.config._attn_implementation": "eager" for module in modules},
        backbone_settings={"config._attn_implementation": "eager"},
    )


@dataclass(frozen=True)
class AttentionRow:
    """Where a block keeps its attention: weights per head, normalisations around it, matrices."""

    module: Paths
    value: Slot | tuple[Slot, ...]
    proj: Slot | tuple[Slot, ...]
    heads: Paths
    kv_heads: Paths = ()
    norm: Paths = ()  # on the attention's input
    out_norm: Paths = ()  # on its output, before the sum
    post_norm: Paths = ()  # after the sum
    norm_offset: float = 0.0  # Gemma multiplies by 1 + weight
    norm_eps: float | None = None  # of a normalisation that does not say it
    given: Taps = ()  # X, where the module normalises its own input; the module's own input otherwise
    scale: Paths = ()  # LayerScale's parameter, or a number that the branch is multiplied by
    result: Taps = ()  # Σ A_h V_h W_proj^h + b; the module's own output unless given
    maps: Maps | None = None
    sink: Paths = ()  # what, when present, keeps the rows of A from summing to 1
    nonlinear: tuple[str, ...] = ()  # modules or attributes that, when present, make it no longer this sum


def of(library: str, names: str) -> tuple[str, ...]:
    """Classes of a library, given with spaces between them."""
    return tuple(f"{library}.{name}" for name in names.split())


def hf(names: str) -> tuple[str, ...]:
    """Classes of Hugging Face's library."""
    return of("transformers", names)


def pre_norm(norm1: str, attn: str | Taps, norm2: str, mlp: str | Taps) -> dict[str, Taps]:
    """The points of a pre-norm block by the names of its modules: what is in front of the second norm is `mid`."""
    return {"norm1": out(norm1), "attn": _tap(attn), "mid": into(norm2), "norm2": out(norm2), "mlp": _tap(mlp)}


def post_norm(attn: str | Taps, norm1: str, mlp: str | Taps, norm2: str) -> dict[str, Taps]:
    """The points of a post-norm block: each norm stands behind a sum, and the first gives `mid`."""
    return {"attn": _tap(attn), "attn_sum": into(norm1), "mid": out(norm1), "mlp": _tap(mlp), "mlp_sum": into(norm2)}


def _tap(given: str | Taps) -> Taps:
    return out(given) if isinstance(given, str) else given


@dataclass(frozen=True)
class Family:
    """One row: where the blocks, norms and attention weights of a class of models are (docs/families.md).

    Every path may be a tuple of candidates in order, because attribute names move between releases.

    `classes` are types, or "package.ClassName" (the file inside the package does not matter); a
    subclass matches too. `blocks` leads from the backbone to the list of blocks; with `passes` (an
    attribute that counts them) the list's entries are spread evenly over so many passes, as ALBERT
    does, and `inner` names a list inside each entry. `when` are attributes that a block must have with
    that value (None: must lack), and `block_classes` classes it must be one of. `points` gives taps
    relative to the block; `pre` and `post` are the block's own input and output unless given.
    """

    name: str
    classes: tuple[str | type, ...]
    blocks: Paths
    placement: Placement = "pre"
    points: Mapping[str, Taps] = field(default_factory=dict)
    embed: Taps = ()
    final_norm: Taps = ()
    attention: AttentionRow | None = None
    passes: str | None = None
    inner: str | None = None
    when: Mapping[str, object] = field(default_factory=dict)
    block_classes: tuple[str | type, ...] = ()
    prefix: tuple[int | str, ...] = ()  # summed: numbers, or attributes of the backbone
    suffix: tuple[int | str, ...] = ()  # likewise, tokens that are no patches at the end of the sequence
    pictures: int | None = None  # a picture's tokens follow those of text, so many of them being no patches
    causal: bool | str = False  # or an attribute of the block
    width: Paths = ("config.hidden_size", "embed_dim")
    batch_first: Paths = ()  # an attribute of the block; False there means (token, batch, dim)
    eval_only: tuple[str, ...] = ()  # points followed by a functional dropout: exact in eval mode only

    def __post_init__(self) -> None:
        if self.placement not in BLOCK_POINTS:
            raise OptionError.unknown("placement", self.placement, BLOCK_POINTS)
        known = BLOCK_POINTS[self.placement]
        for point in (*self.points, *self.eval_only):
            if point not in known:
                kind = "parallel" if self.placement.startswith("parallel") else f"{self.placement}-norm"
                raise OptionError.unknown(f"point of a {kind} block", point, known)

    def like(
        self, name: str, classes: tuple[str | type, ...] = (), *, points: Mapping[str, Taps] | None = None,
        attention: Mapping[str, Any] | None = None, **changes: Any,
    ) -> Family:  # fmt: skip
        """A relative: this row with what differs; `points` and `attention` too name only what differs in them.

        >>> row = Family("a", (), "blocks", points={"attn": out("attn"), "mlp": out("mlp")})
        >>> row.like("b", points={"mlp": out("ffn")}).points == {"attn": out("attn"), "mlp": out("ffn")}
        True
        """
        row = self.attention if attention is None else replace(cast(AttentionRow, self.attention), **attention)
        known = BLOCK_POINTS[changes.get("placement", self.placement)]  # what a block of another kind lacks goes
        every = {point: taps for point, taps in self.points.items() if point in known} | dict(points or {})
        every = {point: taps for point, taps in every.items() if taps != ()}
        return replace(self, name=name, classes=classes or self.classes, points=every, attention=row, **changes)

    def block_tap(self, point: str) -> Taps:
        """The candidates for one point of a block; empty when the family lacks it."""
        default: Taps = {"pre": Tap("", "in"), "post": Tap("", "out")}.get(point, ())
        return self.points.get(point, default)


def written(row: object) -> str:
    """A row, or a part of one, as Python that makes it, without what it leaves open; classes by their names.

    >>> written(Family("mine", (nn.Linear,), "layers", points={"attn": out("mix")}))
    "Family(name='mine', classes=('torch.Linear',), blocks='layers', points={'attn': Tap(path='mix')})"
    """
    if isinstance(row, type):
        return repr(class_name(row))
    if isinstance(row, Mapping):
        return "{" + ", ".join(f"{key!r}: {written(value)}" for key, value in row.items()) + "}"
    if isinstance(row, tuple):
        return f"({', '.join(map(written, row))}{',' if len(row) == 1 else ''})"
    if not is_dataclass(row):
        return repr(row)
    given = [(part, getattr(row, part.name)) for part in fields(row)]
    said = (f"{part.name}={written(value)}" for part, value in given if value not in (part.default, (), {}))
    return f"{type(row).__name__}({', '.join(said)})"


@dataclass(frozen=True)
class Refusal:
    """Classes for which the points mean nothing, and why."""

    classes: tuple[str, ...]
    reason: str


def is_one_of(module: nn.Module, classes: tuple[str | type, ...]) -> bool:
    """Whether the module's class, or one of its bases, is among `classes`.

    >>> is_one_of(nn.Linear(1, 1), ("torch.Linear",)), is_one_of(nn.Linear(1, 1), ("timm.Linear",))
    (True, False)
    """
    return any(base in classes or class_name(base) in classes for base in type(module).__mro__)


def class_name(cls: type) -> str:
    """Package and class, without the file between them (files move between releases).

    >>> class_name(nn.TransformerEncoder)
    'torch.TransformerEncoder'
    """
    return f"{cls.__module__.partition('.')[0]}.{cls.__name__}"
