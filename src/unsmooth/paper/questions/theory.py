"""How far the theory goes: its assumptions, its rates, its limits, and the words of its tables."""

from __future__ import annotations

from unsmooth.paper.evidence import Evidence
from unsmooth.paper.fig1 import run as fig1
from unsmooth.paper.item import Context
from unsmooth.paper.questions import Answer, question
from unsmooth.paper.records import saved_result


@question(
    "Which assumption of the theory fails in a real block (symmetry, heads, normalisation, constants, MLP)?",
    "paper, section 5; summary, open question 2 and question 8", "relax", "", "results",
)  # fmt: skip
def assumptions(e: Evidence) -> Answer | None:
    """Section 5 of the paper: normalisation, feed-forward layers, symmetric A and H; summary, open question 2."""
    saved = saved_result("relax")
    if not saved:
        return None
    rows = {(row[0], row[1]): row for row in saved["tables"][0]["rows"]}
    names = list(dict.fromkeys(name for name, _ in rows))
    said = [f"{name} {rows[name, 'sharpening'][5]}" for name in names if (name, "sharpening") in rows]
    return Answer(
        "settled",
        f"{rows[names[0], 'sharpening'][7]} layers a rung",
        "The first to fail is that there is no LayerNorm. Share of the layers with negative eigenvalues in which "
        f"HFC/LFC rises, as Corollary 3 says: {'; '.join(said)}. For layers with positive eigenvalues that are "
        "repeated, the corollary stays right.",
    )


@question(
    "How fast do features smooth or sharpen, and does the limit say anything about few layers?",
    "paper, section 5; summary, open question 3 and question 10",
    "relax", "a rate that holds under normalisation", "results",
)  # fmt: skip
def rates(e: Evidence) -> Answer | None:
    """Summary, open question 3."""
    saved = saved_result("relax")
    if not saved:
        return None
    rows = {(row[0], row[1]): row for row in saved["tables"][0]["rows"]}
    linear = [row for (name, _), row in rows.items() if "LayerNorm" not in name and not name.startswith("trained")][:8]
    once = rows.get(("trained block, run once", "sharpening"))
    exact = all(row[3] == row[4] for row in linear)
    return Answer(
        "leaning",
        f"{linear[0][7]} layers a rung",
        ("Without a norm the predicted and the measured HFC/LFC after 128 layers are the same. " if exact else "")
        + "The rate is γ for HFC/LFC, and κ for cosine similarity and effective rank (docs, theory). "
        + ("" if once is None else f"For one pass of a trained sharpening block the sign of γ is right in only "
           f"{once[6]} of {once[7]} layers: the limit does not forecast a single step."),
    )  # fmt: skip


@question(
    "What is the “change” of the paper's Tables 1 to 3?", "paper, Tables 1 to 3",
    "table1 --data CIFAR100-TEST --samples 256", "the authors' code", "results",
)  # fmt: skip
def readings(e: Evidence) -> Answer | None:
    """Which reading of "change" the paper's Tables 1 to 3 have."""
    said = [f"Table {i}: {saved['notes'][0]}" for i in (1, 2, 3) if (saved := saved_result(f"table{i}"))]
    return Answer("leaning", "6 models", ". ".join(said) + ".") if said else None


@question(
    "When does rank collapse, and what does the residual connection do?",
    "paper, Theorem 3 and Corollary 2; summary, questions 3 and 4", "fig1", "",
)  # fmt: skip
def rank_collapse(e: Evidence) -> Answer | None:
    """Summary 003, questions 3 and 4."""
    rows = {str(row[0]): row for row in fig1(Context()).tables[0].rows}
    many = next(row for name, row in rows.items() if "multiplicities" in name)
    without = next(row for name, row in rows.items() if "no residual" in name)
    return Answer(
        "settled",
        "4 layers",
        f"With one dominating pair the rank goes to 1; where both multiplicities exceed 1 it stays (effective rank "
        f"{many[7]:.2f} after {many[4]} layers). Without the residual connection HFC/LFC goes to {without[5]:.0e}, "
        "although H's eigenvalues are negative.",
    )
