"""Ours: from the theorem to a real block, one assumption relaxed at a time; HFC/LFC predicted and measured.

The paper's limitations ask for symmetric A and H; its readers ask what happens without them. The first rung is the
theorem's own setting; each further one adds one thing that real blocks have and keeps all that came before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from unsmooth.paper.item import Context, Item, Result, Table, Value

if TYPE_CHECKING:
    from unsmooth.figures.axes import Panel
    from unsmooth.figures.drawing import Drawing
    from unsmooth.theory.scenario import Mode

TOKENS, DIM, HEADS, LAYERS, SEEDS = 64, 32, 4, 128, 20
CONSTANT = 0.1  # standard deviation of the biases
ROUNDING = 15.0  # beyond 10^±15 HFC/LFC is rounding
RUNGS = (
    "theorem: symmetric A, H",
    "+ H not symmetric",
    "+ A not symmetric",
    "+ many heads",
    "+ LayerNorm before it",
    "+ constants (biases)",
    "+ an MLP after it",
    "+ A follows the features",
)
REPEATED, ONCE = "trained block, repeated", "trained block, run once"
MODES: tuple[Mode, ...] = ("sharpening", "smoothing")


@dataclass(frozen=True)
class Draw:
    """One layer at one rung: log10 HFC/LFC at the start, after the theory's layers, after the real ones; and γ."""

    rung: str
    mode: Mode
    start: float
    predicted: float
    measured: float
    exponent: float

    @property
    def rose(self) -> bool:
        """Whether HFC/LFC ended above its start."""
        return self.measured > self.start


@dataclass(frozen=True)
class Layer:
    """`X + Σ_h A_h N(X) W_h + b`, then an MLP; N is LayerNorm where there is a weight. A may follow the features."""

    attention: Float[Tensor, "head token token"] | Callable[[Tensor], Tensor]
    weights: Float[Tensor, "head dim dim"]
    norm_weight: Tensor | None = None
    norm_bias: Tensor | None = None
    offset: Tensor | None = None
    mlp: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        inner = x if self.norm_weight is None else layer_norm(x, x.shape[-1:], self.norm_weight, self.norm_bias)
        x = x + (self._attention(inner) @ inner @ self.weights).sum(0)
        x = x if self.offset is None else x + self.offset
        return x if self.mlp is None else x + self.mlp(x)

    def draw(self, rung: str, mode: Mode, x: Tensor, layers: int = LAYERS) -> Draw:
        """The layer repeated, beside what the theory knows of it: folded weights, A and scale frozen at the start."""
        inner, weights, scale = x, self.weights, 1.0
        if self.norm_weight is not None:
            inner = layer_norm(x, x.shape[-1:], self.norm_weight, self.norm_bias)
            weights = self.norm_weight[:, None] * weights
            weights = weights - weights.mean(-2, keepdim=True)
            scale = float(x.var(-1, unbiased=False).add(1e-5).rsqrt().mean())
        return compared(rung, mode, x, self, self._attention(inner), weights, scale, layers)

    def _attention(self, inner: Tensor) -> Tensor:
        return self.attention if isinstance(self.attention, Tensor) else self.attention(inner)


def compared(
    rung: str,
    mode: Mode,
    x: Tensor,
    block: Callable[[Tensor], Tensor],
    attention: Tensor,
    weights: Tensor | tuple[Tensor, Tensor],
    scale: float,
    layers: int,
) -> Draw:
    """A block repeated, and the theory's linear layer repeated as often."""
    from unsmooth.metrics import hfc_lfc_ratio
    from unsmooth.theory import layer_exponent, simulate

    scaled = scale * weights if isinstance(weights, Tensor) else (scale * weights[0], weights[1])
    theory = simulate(x, attention, scaled, layers).hfc_lfc
    gamma = float(layer_exponent(attention[None], weights, scale=scale, accuracy=0.01).exponent[0])
    state = x
    for _ in range(layers):
        state = block(state)
        if isinstance(block, Layer) and block.norm_weight is None and block.mlp is None:
            state = state / state.norm()  # a linear layer: its scale says nothing and may overflow
    start, predicted, measured = (_log10(float(value)) for value in (theory[0], theory[-1], hfc_lfc_ratio(state)))
    return Draw(rung, mode, start, predicted, measured, gamma)


def _log10(ratio: float) -> float:
    """Bounded by what is more than rounding; a mean token of exactly zero counts as such."""
    return max(-ROUNDING, min(ROUNDING, math.log10(ratio) if ratio > 0 else -math.inf))


def ladder(seed: int, layers: int = LAYERS) -> Iterator[Draw]:
    """All rungs for one seed; X, eigenvalues, eigenvectors and everything added later are the same on each."""
    from unsmooth.theory.scenario import random_h

    for mode in MODES:
        rng = torch.Generator().manual_seed(seed)

        def normal(*shape: int, rng: torch.Generator = rng) -> Tensor:
            return torch.randn(*shape, generator=rng, dtype=torch.float64)

        x, scores = normal(TOKENS, DIM), normal(TOKENS, TOKENS)
        query, key = normal(HEADS, DIM, DIM) / DIM**0.5, normal(HEADS, DIM, DIM) / DIM**0.5
        weight = torch.rand(DIM, generator=rng, dtype=torch.float64)
        bias, offset = CONSTANT * normal(DIM), CONSTANT * normal(DIM)
        up, down = normal(DIM, 4 * DIM) / DIM**0.5, normal(4 * DIM, DIM) / (4 * DIM) ** 0.5
        symmetric, general = (random_h(DIM, form, mode, torch.Generator().manual_seed(seed))
                              for form in ("symmetric", "general"))  # fmt: skip

        def follows(inner: Tensor, query: Tensor = query, key: Tensor = key) -> Tensor:
            return torch.softmax((inner @ query) @ (inner @ key).mT / DIM**0.5, -1)

        def mlp(state: Tensor, up: Tensor = up, down: Tensor = down, weight: Tensor = weight) -> Tensor:
            return gelu(layer_norm(state, (DIM,), weight) @ up) @ down

        even, frozen, split = doubly_stochastic(scores + scores.mT)[None], follows(x), split_heads(general, HEADS)
        rungs = (
            Layer(even, symmetric.mT[None]),
            Layer(even, general.mT[None]),
            Layer(frozen[:1], general.mT[None]),
            Layer(frozen, split),
            Layer(frozen, split, weight),
            Layer(frozen, split, weight, bias, offset),
            Layer(frozen, split, weight, bias, offset, mlp),
            Layer(follows, split, weight, bias, offset, mlp),
        )
        for rung, layer in zip(RUNGS, rungs, strict=True):
            yield layer.draw(rung, mode, x, layers)


def doubly_stochastic(scores: Float[Tensor, "token token"]) -> Float[Tensor, "token token"]:
    """Sinkhorn's limit of exp(scores): symmetric where the scores are, rows and columns sum to 1 (Sander et al. 2022).

    >>> a = doubly_stochastic(torch.tensor([[0.0, 1.0], [1.0, 3.0]], dtype=torch.float64))
    >>> bool(torch.allclose(a, a.mT)), [round(float(v), 6) for v in a.sum(0)]
    (True, [1.0, 1.0])
    """
    scale = torch.zeros_like(scores[0])
    for _ in range(500):  # the symmetric iteration: half a step keeps it from swinging
        scale = (scale - (scores + scale).logsumexp(-1)) / 2
    a = (scores + scale[:, None] + scale).exp()
    return a / a.sum(-1, keepdim=True)


def split_heads(h: Float[Tensor, "dim dim"], heads: int) -> Float[Tensor, "head dim dim"]:
    """`W_h` whose sum is Hᵀ, each head with its share of H's eigenvectors (footnote 2's split, with the inverse)."""
    values, vectors = torch.linalg.eig(h)
    left = torch.linalg.inv(vectors)
    order = values.real.argsort()
    parts = [vectors[:, rows] * values[rows] @ left[rows] for rows in order.split(len(order) // heads)]
    return torch.stack([part.real.mT for part in parts])


def _trained(context: Context) -> Iterator[Draw]:
    """Every block of the shipped sharpening and smoothing model, repeated and run once, on a picture."""
    from unsmooth.paper.depth import shipped_models
    from unsmooth.sources import load_model, open_data

    references = dict(reference.split("=", 1) for reference in shipped_models())
    for mode in MODES:
        chosen = sorted((name for name in references if name.endswith(f"-{mode}")), key=len)
        if not chosen:
            continue
        # the shortest name has no share of the data in it: trained on all
        loaded = load_model(references[chosen[0]], dtype=torch.float64)
        (batch,) = open_data("bundled", loaded, batch_size=1, limit=1)
        assert isinstance(batch, Tensor)
        yield from blocks(loaded.model, batch.double(), mode, context)


def blocks(model: torch.nn.Module, batch: Tensor, mode: Mode, context: Context) -> Iterator[Draw]:
    """Each block of a pre-norm vision model on one input: its own weights, matrices, constants and MLP."""
    from unsmooth.analysis.folding import cast_weights, fold_weights
    from unsmooth.models import capture_attention, hook_points, view
    from unsmooth.theory.folding import statistics

    seen = view(model)
    before: dict[int, Tensor] = {}
    attention: dict[int, Tensor] = {}
    points = [f"blocks.{layer.index}.pre" for layer in seen.layers]
    with (
        torch.no_grad(),
        hook_points(seen, points, lambda point, x: before.update({int(point.split(".")[1]): x})),
        capture_attention(seen, attention.__setitem__),
    ):
        model(batch)
    for layer in context.track(seen.layers, f"blocks trained for {mode}", len(seen.layers)):
        folded, x = fold_weights(cast_weights(layer.weights(), torch.float64)), before[layer.index][0]
        scale = float(statistics(folded.norm, x).mean())

        def block(state: Tensor, module: torch.nn.Module = layer.block) -> Tensor:
            with torch.no_grad():
                after: Tensor = module(state[None])[0]
            return after

        for rung, times in ((REPEATED, LAYERS), (ONCE, 1)):
            yield compared(rung, mode, x, block, attention[layer.index][0], folded.pair, scale, times)


def run(context: Context) -> Result:
    """Random layers for every rung, then the blocks of the shipped models."""
    seeds = range(context.seed, context.seed + (context.limit or SEEDS))
    found = [draw for seed in context.track(seeds, "random layers", len(seeds)) for draw in ladder(seed)]
    trained = list(_trained(context))
    return Result(
        label=f"{len(seeds)} random layers of {TOKENS} tokens and {DIM} features on each rung, repeated {LAYERS} times"
        + (f"; then {len(trained) // 2} trained blocks on a picture" if trained else ""),
        tables=[table_of([*found, *trained])],
        figures={"relax": drawing([*found, *trained])},
        notes=[
            "predicted: the theory's layer X + s Σ A_h X W̃_h, everything linear folded in, A and the LayerNorm's mean "
            "scale s frozen at the start, repeated as often; measured: the layer with all that its rung has",
            "right verdict: HFC/LFC ends above its start where the prediction says so, below it where it does not; "
            "Corollary 3 goes by the eigenvalues of H alone, γ by the folded layer",
            f"± is the standard deviation over layers; values end at ±{ROUNDING:g}, where rounding begins",
            *([] if trained else ["no trained model is here: the rungs end with random layers"]),
        ],
        about={"seeds": list(seeds), "tokens": TOKENS, "dim": DIM, "heads": HEADS, "layers": LAYERS},
    )


def table_of(draws: Sequence[Draw]) -> Table:
    """One row for each rung and mode."""
    rows: list[list[Value]] = []
    for (rung, mode), group in _grouped(draws).items():
        values = ([d.start for d in group], [d.predicted for d in group], [d.measured for d in group])
        rows.append([rung, mode, *map(_spread, values), *(f"{share:.0%}" for share in _right(group)), len(group)])
    columns = ["setting", "mode", "start", "predicted", "measured", "Corollary 3 right", "γ right", "n"]
    return Table("log10 HFC/LFC, and how often a verdict is right", columns, rows)


def _grouped(draws: Sequence[Draw]) -> dict[tuple[str, Mode], list[Draw]]:
    groups: dict[tuple[str, Mode], list[Draw]] = {}
    for rung in (*RUNGS, REPEATED, ONCE):
        for mode in MODES:
            if chosen := [d for d in draws if (d.rung, d.mode) == (rung, mode)]:
                groups[rung, mode] = chosen
    return groups


def _right(group: Sequence[Draw]) -> tuple[float, float]:
    """How often Corollary 3's verdict is right, and how often γ's."""
    return (
        fmean(d.rose == (d.mode == "sharpening") for d in group),
        fmean(d.rose == (d.exponent > 0) for d in group),
    )


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):+.1f} ± {stdev(values) if len(values) > 1 else math.nan:.1f}"


def drawing(draws: Sequence[Draw]) -> Drawing:
    """Above, log10 HFC/LFC at the end, a tick where the theory's layer ends; below, how often a verdict is right."""
    from unsmooth.figures.axes import Panel
    from unsmooth.figures.drawing import Drawing

    groups = _grouped(draws)
    rungs = list(dict.fromkeys(rung for rung, _ in groups))
    colours = {"sharpening": "sharp", "smoothing": "smooth"}
    picture = Drawing(1020, 606)
    top = Panel(picture, 70, 40, 920, 290, (-0.5, len(rungs) - 0.5), (-16.0, 16.0))
    low = Panel(picture, 70, 385, 920, 110, (-0.5, len(rungs) - 0.5), (0.0, 1.0))
    _frame(top, "log10 HFC/LFC after the last layer", range(-15, 16, 5), lambda v: f"{v:d}".replace("-", "−"))
    _frame(low, "share of layers with the right verdict", (0, 0.5, 1), lambda v: f"{100 * v:.0f} %")
    for (rung, mode), group in groups.items():
        centre = rungs.index(rung) + (-0.2 if mode == "sharpening" else 0.2)
        places = [centre + 0.14 * (2 * i / max(1, len(group) - 1) - 1) for i in range(len(group))]
        picture.dots(
            [(top.x(p), top.y(d.measured)) for p, d in zip(places, group, strict=True)], colours[mode], 5, 0.55
        )
        for place, draw in zip(places, group, strict=True):
            across = [(top.x(place) + side, top.y(draw.predicted)) for side in (-4, 4)]
            picture.line(across, "ink", 1.2)
        for offset, right, opacity in zip((-0.07, 0.07), _right(group), (1.0, 0.4), strict=True):
            left, width = low.x(centre + offset - 0.06), low.x(0.12) - low.x(0)
            picture.rect(left, low.y(right), width, low.y(0) - low.y(right), colours[mode], opacity)
    for number, rung in enumerate(rungs):
        for line, words in enumerate(_two_lines(rung)):
            picture.text(low.x(number), 515 + 13 * line, words, anchor="middle", size=10.5, colour="ink")
    for row, (colour, said) in enumerate(
        (("sharp", "H held below zero (sharpening)"), ("smooth", "above (smoothing)"))
    ):
        picture.dots([(75 + 215 * row, 566)], colour, 8, 1)
        picture.text(85 + 215 * row, 570, said)
    picture.line([(420, 566), (428, 566)], "ink", 1.2)
    picture.text(436, 570, "predicted by the theory's linear layer; dots: measured, one for each layer")
    for x, opacity, said in ((70, 1.0, "Corollary 3: the sign of H's eigenvalues alone"),
                             (390, 0.4, "the exponent γ of the folded layer")):  # fmt: skip
        picture.rect(x, 583, 12, 12, "soft", opacity)
        picture.text(x + 18, 593, said)
    return picture


def _frame(panel: Panel, title: str, ticks: Sequence[float], said: Callable[[float], str]) -> None:
    d = panel.drawing
    d.text(panel.left, panel.top - 12, title, size=12, colour="ink", bold=True)
    for tick in ticks:
        d.line([(panel.left, panel.y(tick)), (panel.left + panel.width, panel.y(tick))], "line")
        d.text(panel.left - 6, panel.y(tick) + 3.5, said(tick), anchor="end", size=10)


def _two_lines(words: str) -> tuple[str, str]:
    """A label on two lines of about the same length.

    >>> _two_lines("+ A follows the features")
    ('+ A follows', 'the features')
    """
    parts = words.split()
    cut = min(range(1, len(parts)), key=lambda i: abs(len(" ".join(parts[:i])) - len(" ".join(parts[i:]))))
    return " ".join(parts[:cut]), " ".join(parts[cut:])


ITEM = Item(
    "relax",
    "ours",
    "From the theorem to a real block: HFC/LFC predicted and measured as one assumption after another falls",
    needs="nothing: random layers and the models that ship with unsmooth, about a minute. --samples sets the number of "
    "random layers on each rung (20), --seed their draws.",
    run=run,
)
