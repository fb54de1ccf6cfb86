"""`python -m unsmooth`, for places where the command itself is not on the path."""

from unsmooth.cli import main

main()
