"""The page's sections in order: heading, how to read the figure, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Section:
    """One figure of the page. `prose` is our own HTML; nothing a user wrote stands in it."""

    name: str
    short: str
    title: str
    prose: str
    needs: Literal["measure", "explain", "attribute", "tokens", "nothing"] = "measure"


SECTIONS = (
    Section(
        "depth", "Depth", "Smoothness by depth",
        "Each metric along the residual stream, from the input of the first layer to the output of the last; the half "
        "steps lie between attention and MLP. The band is one standard deviation over samples. Hover, or focus a chart "
        "and use the arrow keys, to read layer, point and value.",
    ),
    Section(
        "steps", "Sub-layers", "What each sub-layer does",
        "Every bar is one sub-layer’s step, starting where the one before ended. <em>Residual</em> compares the stream "
        "before and after a sub-layer; <em>chain</em> follows each module from its own input, so that the "
        "normalisation’s share is seen too. In a post-norm model the normalisation works on the stream itself, so both "
        "readings show it apart from the attention or MLP before it. A block that adds attention and MLP in one sum "
        "(GPT-NeoX, Phi, Falcon) has no stream between them, and one bar for both; what its attention does alone is "
        "among the exponents below.",
    ),
    Section(
        "who", "Who did it", "Who did it",
        "The change of ln HFC/LFC between the first layer’s input and the last one’s output, split without remainder: "
        "every head (on how tokens deviate from their mean), the mean path (what attention gives every token alike, "
        "all constants included), every MLP, and in a post-norm model every normalisation (n 1 after attention, n 2 "
        "after the MLP). Shares are direct effects: what a part adds, where it adds it. What later layers do without "
        "it is another question; a table answers it for the strongest parts. Beside the map stand the largest parts, "
        "below it the tokens, and last those that are far out: their norms, which heads attend to them, and ln HFC/LFC "
        "in a run where the MLP that makes them writes nothing to them.",
        "attribute",
    ),
    Section(
        "spectra", "Spectra", "Eigenvalues of H",
        "H = (W<sub>V</sub>W<sub>proj</sub>)<sup>⊤</sup> acts on features. A single head sharpens if all its "
        "eigenvalues lie in the orange interval [−1, 0) of the real axis, and smooths if all lie on its blue half-line "
        "(0, ∞) (Corollary 3). Inside the dashed circle, |1 + λ| &lt; 1, the mean token shrinks along the "
        "eigenvector; outside, and so everywhere right of zero, it grows. Small dots are the bare "
        "weights; large ones are what acts, with the normalisation’s weight, centring and step and any LayerScale "
        "folded in. Where the two clouds differ, the bare weights mislead.",
        "explain",
    ),
    Section(
        "histograms", "Distribution", "How the eigenvalues are distributed",
        "Real parts over all layers, the form of the paper’s Figure 5. Mass left of zero pushes towards sharpening, "
        "mass right of it towards smoothing.",
        "explain",
    ),
    Section(
        "shares", "Types", "Which type dominates",
        "Over layers, heads and inputs: how often the dominating eigenvalue belongs to the mean direction (type 1, "
        "tokens become equal) or to another one (type 2, tokens stay apart). The interval says how much the share "
        "varies with the input; layers and heads are those of this model. A tie means that neither moves: a head of "
        "low rank leaves most directions as they are.",
        "explain",
    ),
    Section(
        "exponents", "Exponents", "Predicted and measured exponents",
        "For every attention sub-layer, the rate at which theory says HFC/LFC changes, beside what it did on the same "
        "inputs. γ describes a layer repeated for ever and is not bound to fit a single step; where it fails, the plot "
        "below shows how. Points in the shaded quadrants have the predicted sign.",
        "explain",
    ),
    Section(
        "heads", "Heads", "Layers and heads",
        "The single-head exponent of every head, and the entropy of its attention: 0 looks at one token, 1 at all "
        "tokens alike. Flat attention changes what all tokens share and hardly anything else.",
        "explain",
    ),
    Section(
        "tokens", "Tokens", "The tokens themselves",
        "One example on its way through the layers. Left, each token’s distance from the mean token: its square "
        "averages to (HFC/LFC)². Right, the cosine similarity of every pair. Press play and see smoothing, or "
        "sharpening, happen.",
        "tokens",
    ),
    Section(
        "could", "What one could do", "What one could do",
        "Edits of the trained weights, each at growing strength: what they do to HFC/LFC after the last layer "
        "(further right, tokens differ more), and what they cost on a task. <em>high=0</em> moves the real parts of "
        "H’s eigenvalues that lie above zero, on the side that smooths by Corollary 3, to zero; <em>low=0</em> those "
        "below; <em>drop_sink</em> keeps an MLP from making one token enormous. Only what was measured for this model "
        "stands here.",
        "nothing",
    ),
    Section(
        "playground", "Playground", "A layer to play with",
        "One attention layer with a random H, repeated 128 times, computed in this page. Drag the handle, or move the "
        "sliders: where do eigenvalues and temperature make it smooth? Then put the normalisation before or after, and "
        "flip its sign. Try V Λ V⁻¹ with Pre-LN: the eigenvalues of H say sharpening, and the layer does not obey. The "
        "curve has 64 tokens and 32 features; each cell of the diagram is a smaller layer (24 tokens, 12 features) "
        "after 48 repetitions.",
        "nothing",
    ),
)  # fmt: skip
