"""HFC/LFC, cosines and ranks by depth: the pass that measures, what was measured, and two of them side by side."""
