"""*Who did it*: a table says over how many inputs its rows are means, also where they differ."""

from __future__ import annotations

from unsmooth.page.charts.attributed import _effect_table


def test_total_effects_of_fewer_inputs_are_counted() -> None:
    """What an MLP writes to one position is not taken out of padded batches, so its row has fewer inputs."""
    row = {"layer": 1, "part": "MLP", "tokens": "all", "direct": 1.0, "total": 0.5, "inputs": 4}
    alone = {**row, "part": "MLP at position 0", "inputs": 2}
    assert "mean over 4 inputs" in _effect_table([row, row])
    page = _effect_table([row, alone])
    assert "mean over 2 to 4 inputs" in page
    assert "MLP of layer 1, at position 0" in page
