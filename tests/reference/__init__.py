"""Slow, obvious twins of the fast routines, a file for each room. Tests run both."""
