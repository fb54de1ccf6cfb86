"""`--samples` counts; `--limit`, its name in version 0.1, still works and is not shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def test_the_command_line_counts_samples_and_still_knows_the_old_word(cli: Callable[..., Any], tiny: list[str]) -> None:
    for word in (("--samples", "2"), ("--limit", "2"), ("--limit=2",)):
        shown = cli("measure", *tiny, "--data", "random", *word, "--points", "residual", "--json")
        assert json.loads(shown.stdout)["samples"] == 2
    said = cli("measure", "--help").stdout
    assert "--samples" in said
    assert "--limit" not in said
