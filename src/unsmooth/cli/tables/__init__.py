"""Measurements, explanations and attributions as tables for people."""
