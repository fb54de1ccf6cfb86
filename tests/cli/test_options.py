"""Options of model and data have one owner: every verb that takes a model has them all, with the same words."""

from __future__ import annotations

from dataclasses import fields

import pytest
from typer.main import get_command

from unsmooth.cli import options
from unsmooth.cli.app import app
from unsmooth.cli.values import numbers
from unsmooth.errors import OptionError

COMMAND = get_command(app)


@pytest.mark.parametrize("verb", ["measure", "explain", "attribute", "report", "compare", "track"])
def test_a_verb_that_takes_a_model_has_every_option_of_model_and_data(verb: str) -> None:
    shown = {p.name: p for p in COMMAND.commands[verb].params}  # type: ignore[attr-defined]
    one = {p.name: p for p in COMMAND.commands["measure"].params}  # type: ignore[attr-defined]
    groups = (options.DataOptions, options.PlaceOptions if verb == "track" else options.ModelOptions)
    names = [field.name for group in groups for field in fields(group)]
    assert names == [name for name in shown if name in names]  # in one piece, the data first
    for name in set(names) - {"weights"}:
        assert shown[name].help == one[name].help
    defaults = {field.name: field.default for group in groups for field in fields(group)}
    assert all(shown[name].default == defaults[name] for name in set(names) - {"samples"})


def test_only_models_from_a_library_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, object]] = []
    monkeypatch.setattr(
        "unsmooth.sources.load_model", lambda reference, **asked: seen.append((reference, asked["device_map"]))
    )
    list(options.ModelsOptions(device="cpu", device_map="auto").load_each(["zoo:a", "hf:b"]))
    assert seen == [("zoo:a", None), ("hf:b", "auto")]


def test_layer_ids_are_whole_numbers() -> None:
    assert numbers("--layer-ids", "1, 2", int, "1,2,3") == [1, 2]
    with pytest.raises(OptionError, match="--layer-ids '1.5': expected whole numbers with commas, such as 1,2,3"):
        numbers("--layer-ids", "1.5", int, "1,2,3")
