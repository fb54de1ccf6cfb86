"""What to do: give H eigenvalues of a chosen sign, train, and turn it back into plain weights."""

from unsmooth.control.apply import control_of, reparametrize
from unsmooth.control.spectral import SpectralControl

__all__ = ["SpectralControl", "control_of", "reparametrize"]
