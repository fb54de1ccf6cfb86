"""The layer to play with: the same numbers as the library's, and controls that change them."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from page.person import Person

from unsmooth.theory import simulate


@pytest.mark.parametrize(("norm", "sign"), list(itertools.product([None, "pre", "post"], [1, -1])))
def test_the_page_simulates_as_the_library_does(browser: Person, person: Person, norm: str | None, sign: int) -> None:
    n, d, layers = 9, 6, 40
    x = torch.randn(n, d, dtype=torch.float64)
    a = torch.softmax(torch.randn(n, n, dtype=torch.float64), -1)
    w = torch.randn(d, d, dtype=torch.float64) / d
    weight = sign * (torch.rand(d, dtype=torch.float64) + 0.2)
    inputs = {name: value.flatten().tolist() for name, value in (("x", x), ("a", a), ("w", w), ("weight", weight))}
    call = json.dumps({**inputs, "n": n, "d": d, "layers": layers, "norm": norm})
    found = torch.tensor(person.evaluate(f"Array.from(window.unsmooth.simulate({call}))"), dtype=torch.float64)
    expected = simulate(x, a, w, layers, norm, norm_weight=weight).hfc_lfc  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_its_random_layer_is_what_it_says(person: Person) -> None:
    for form in ("symmetric", "general"):
        settings = json.dumps(
            {"seed": 3, "n": 12, "d": 8, "low": -0.7, "high": -0.2, "temperature": 0.5, "form": form, "sign": -1}
        )
        layer = person.evaluate(
            f"(() => {{ const l = window.unsmooth.randomLayer({settings});"
            "return {a: Array.from(l.a), w: Array.from(l.w), weight: Array.from(l.weight)}; })()"
        )
        a = torch.tensor(layer["a"], dtype=torch.float64).view(12, 12)
        h = torch.tensor(layer["w"], dtype=torch.float64).view(8, 8).mT
        torch.testing.assert_close(a.sum(-1), torch.ones(12, dtype=torch.float64))
        values = torch.linalg.eigvals(h)
        assert float(values.imag.abs().max()) < 1e-8
        assert -0.7 - 1e-8 < float(values.real.min()) <= float(values.real.max()) < -0.2 + 1e-8
        assert max(layer["weight"]) <= 0
        if form == "symmetric":
            torch.testing.assert_close(h, h.mT)


def verdict(person: Person) -> str:
    return person.text("#play-verdict")


def test_presets_and_sliders_change_the_regime(person: Person) -> None:
    assert "sharpens" in verdict(person)
    person.click("#playground .preset:nth-child(2)")
    assert "smooths" in verdict(person)
    said = verdict(person)
    for control in range(3):
        person.press("ArrowLeft", f"#playground .slider:nth-of-type({control + 2}) input")
        assert verdict(person) != said, control
        said = verdict(person)


def choose(person: Person, control: str, value: str) -> None:
    person.evaluate(f"document.querySelector(\"[data-control='{control}'] input[value='{value}']\").click()")
    person.settle()


def test_a_negative_norm_weight_turns_pre_norm_around_and_does_nothing_after(person: Person) -> None:
    choose(person, "Normalisation", "pre")
    assert "sharpens" in verdict(person)
    choose(person, "LN weights", "-1")
    assert "smooths" in verdict(person)
    choose(person, "Normalisation", "post")
    negative = verdict(person)
    choose(person, "LN weights", "1")
    assert verdict(person) == negative


def test_the_form_and_another_layer_change_the_curve(person: Person) -> None:
    said = verdict(person)
    choose(person, "Form of H", "general")
    assert verdict(person) != said
    said = verdict(person)
    person.click("#playground .play-controls > .preset")
    assert verdict(person) != said


def test_the_handle_is_dragged_and_moved_with_keys(person: Person) -> None:
    before = verdict(person)
    person.drag("#play-phase .handle", 170, 0)
    assert "smooths" in verdict(person)
    assert verdict(person) != before
    largest = person.text("[data-control='largest λ of H'] output")
    person.press("ArrowLeft", "#play-phase .handle")
    assert person.text("[data-control='largest λ of H'] output") != largest
    assert person.evaluate("document.activeElement.classList.contains('handle')")
    assert person.problems() == []


def test_the_phase_diagram_follows_the_normalisation(person: Person) -> None:
    before = person.look("#play-phase")
    choose(person, "Normalisation", "pre")
    choose(person, "LN weights", "-1")
    person.settle()
    assert person.look("#play-phase") != before
