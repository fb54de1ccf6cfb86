"""Published fixes for oversmoothing, applied to the same models for comparison."""

from unsmooth.control.peers.base import AttentionFix, Peer
from unsmooth.control.peers.registry import PEERS, apply_fix

__all__ = ["PEERS", "AttentionFix", "Peer", "apply_fix"]
