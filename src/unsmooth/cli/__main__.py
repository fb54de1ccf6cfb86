"""`python -m unsmooth.cli`, for places where the command itself is not installed."""

from unsmooth.cli import main

main()
