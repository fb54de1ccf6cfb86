"""Where things are inside a model: one row per family; no code elsewhere knows a model's attribute names."""

from unsmooth.models.attention import capture_attention
from unsmooth.models.family import AttentionRow, Family, Maps, Slot, sdpa_maps
from unsmooth.models.finding import find_family
from unsmooth.models.hooks import hook_points, replace_points
from unsmooth.models.points import select_points, split_point
from unsmooth.models.reconstruction import check_attention
from unsmooth.models.registry import families, register_family, unregister_family
from unsmooth.models.sums import check_sums
from unsmooth.models.taps import Tap, into, out
from unsmooth.models.view import LayerView, ModelView, view
from unsmooth.models.weights import HeadWeights, Norm

__all__ = [
    "AttentionRow",
    "Family",
    "HeadWeights",
    "LayerView",
    "Maps",
    "ModelView",
    "Norm",
    "Slot",
    "Tap",
    "capture_attention",
    "check_attention",
    "check_sums",
    "families",
    "find_family",
    "hook_points",
    "into",
    "out",
    "register_family",
    "replace_points",
    "sdpa_maps",
    "select_points",
    "split_point",
    "unregister_family",
    "view",
]
