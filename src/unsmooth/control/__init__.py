"""What to do: give H eigenvalues of a chosen sign, train, and turn it back into plain weights."""

from unsmooth.control.adapter import Adapter, adapt, adapter_of
from unsmooth.control.baking import bake
from unsmooth.control.edit import edit
from unsmooth.control.edited import Edit
from unsmooth.control.fitting import Fit
from unsmooth.control.fixes import FIXES, apply_fix
from unsmooth.control.monitor import ControlMonitor, ControlReading
from unsmooth.control.optimiser_groups import parameter_groups
from unsmooth.control.penalty import spectral_penalty
from unsmooth.control.reparametrization import control_of, reparametrize
from unsmooth.control.spectral import SpectralControl
from unsmooth.control.variant import Variant

__all__ = [
    "FIXES",
    "Adapter",
    "ControlMonitor",
    "ControlReading",
    "Edit",
    "Fit",
    "SpectralControl",
    "Variant",
    "adapt",
    "adapter_of",
    "apply_fix",
    "bake",
    "control_of",
    "edit",
    "parameter_groups",
    "reparametrize",
    "spectral_penalty",
]
