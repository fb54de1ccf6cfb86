"""Published fixes for oversmoothing, applied to the same models for comparison."""

from unsmooth.control.fixes.base import AttentionFix, Fix
from unsmooth.control.fixes.registry import FIXES, apply_fix

__all__ = ["FIXES", "AttentionFix", "Fix", "apply_fix"]
