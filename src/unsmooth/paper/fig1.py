"""Figure 1: which definition of oversmoothing always holds. Prior work says some do; one example each says none."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unsmooth.metrics.definitions import cosine_similarity, effective_rank
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.published import published
from unsmooth.theory import dominance, simulate

_TOKENS, _DIM, _MOST_LAYERS = 12, 6, 20_000


def run(context: Context) -> Result:
    """Four layers: each definition of oversmoothing is met by one of them and not met by another."""
    generator = torch.Generator().manual_seed(context.seed)
    rows: list[list[Value]] = []
    for name, (h, a, residual) in _examples(generator).items():
        found = dominance(a, h.mT, residual=residual)
        x = torch.randn(_TOKENS, _DIM, generator=generator, dtype=torch.float64)
        # Until what does not dominate is e⁻²⁰ of what does; a margin is in nats per layer.
        layers = min(math.ceil(20 / found.margin), _MOST_LAYERS)
        end = simulate(x, a, h.mT, layers, residual=residual)
        verdicts = (found.input_convergence, found.angle_convergence, found.rank_collapse)
        rows.append(
            [name, *("yes" if v else "no" for v in verdicts), layers, float(end.hfc_lfc[-1]),
             float(cosine_similarity(end.x)), float(effective_rank(end.x))]
        )  # fmt: skip
    columns = ["layer, repeated", "Def. 1 input", "Def. 2 angle", "Def. 3 rank", "iterations", "HFC/LFC", "cosine",
               "effective rank"]  # fmt: skip
    return Result(
        label=f"one example of each case of Theorem 3, seed {context.seed}; predicted, and iterated",
        tables=[Table("Does the definition of oversmoothing hold?", columns, rows), marks()],
        notes=[
            "the first table backs the paper's own row of marks: with a residual connection no definition always holds",
            "the marks of prior work are the paper's reading of it, from its introduction; where a definition is said "
            "to hold, all later ones hold too, as the caption of Figure 1 says",
        ],
        about={"seed": context.seed, "tokens": _TOKENS, "dim": _DIM},
    )


def marks() -> Table:
    """✓ where a work says that the definition always holds; ✗, in the paper's own row, where it does not always."""
    rows: list[list[Value]] = [
        [work, *("✓" if number >= first else None for number in (1, 2, 3))]
        for work, first in published("fig1")["first"].items()
    ]
    columns = ["work", "Def. 1 input", "Def. 2 angle", "Def. 3 rank"]
    return Table("Who says that it always holds", columns, [*rows, ["this paper", "✗", "✗", "✗"]])


def _examples(generator: torch.Generator) -> dict[str, tuple[Tensor, Tensor, bool]]:
    """H, A and whether there is a residual connection; A is row-stochastic and not symmetric."""
    a = torch.randn(_TOKENS, _TOKENS, generator=generator, dtype=torch.float64).softmax(-1)
    q = torch.linalg.qr(torch.randn(_DIM, _DIM, generator=generator, dtype=torch.float64)).Q
    size = 0.2 + 0.8 * torch.rand(_DIM, generator=generator, dtype=torch.float64)
    half = torch.full((_TOKENS, _TOKENS), 1 / _TOKENS, dtype=torch.float64)
    return {
        "λ_H > 0: type (1) dominates": (q * size @ q.mT, a, True),
        "λ_H in [−1, 0): type (2) dominates": (q * -size @ q.mT, a, True),
        "no residual connection (Corollary 2)": (q * -size @ q.mT, a, False),
        # Theorem 3 (3b): H = −½ I and A = ½ (I + 11ᵀ/n) have eigenvalues of high multiplicity, and these dominate.
        "both multiplicities > 1": (-0.5 * torch.eye(_DIM, dtype=torch.float64), (half + torch.eye(_TOKENS)) / 2, True),
    }


ITEM = Item(
    "fig1",
    "paper",
    "Theory of oversmoothing: which definition holds in which case",
    needs="nothing: four constructed layers, a second. --seed for other ones.",
    run=run,
)
