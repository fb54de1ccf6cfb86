"""The page as a person uses it, in a headless Chromium."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from page.person import EVIL, Person

SECTIONS = ("depth", "steps", "spectra", "histograms", "shares", "exponents", "heads", "tokens")


def test_it_opens_without_a_complaint_and_asks_nobody(person: Person, page: Path) -> None:
    assert person.problems() == []
    assert person.requests() == [page.resolve().as_uri()]


def test_a_hostile_name_does_nothing_but_stand_there(person: Person) -> None:
    assert person.evaluate("window.hacked") is None
    assert EVIL in person.text("#legend")
    assert EVIL in person.text("#provenance")


@pytest.mark.parametrize("section", SECTIONS)
def test_every_choice_changes_its_figures(person: Person, section: str) -> None:
    count = person.evaluate(f"document.querySelectorAll('#{section} .segmented').length")
    sliders = person.evaluate(f"document.querySelectorAll('#{section} .slider').length")
    assert count + sliders > 0
    if section == "spectra":  # where the first layer reaches farthest, its frame is that of all layers
        person.press("ArrowRight", "#spectra input[type=range]")
    for group in range(count):
        person.evaluate(
            f"document.querySelectorAll('#{section} .segmented')[{group}].querySelectorAll('span')"
            f".forEach((s, i) => {{ s.id = '{section}-{group}-' + i; }})"
        )
        options = person.evaluate(f"document.querySelectorAll('[id^={section}-{group}-]').length")
        for option in range(1, options):
            chosen = f"document.querySelector('#{section}-{group}-{option}').previousSibling.value"
            if person.evaluate(chosen) in ("with_constant", "without_constant"):
                continue  # this model has no biases: these are γ and the exact step
            before = person.look(f"#{section}")
            person.click(f"#{section}-{group}-{option}")
            assert person.look(f"#{section}") != before, (section, group, option)
    assert person.problems() == []


@pytest.mark.parametrize("section", ["depth", "steps"])
def test_every_menu_changes_its_figures(person: Person, section: str) -> None:
    for menu in range(person.evaluate(f"document.querySelectorAll('#{section} select').length")):
        before = person.look(f"#{section}")
        person.evaluate(
            f"(() => {{ const m = document.querySelectorAll('#{section} select')[{menu}];"
            "m.selectedIndex = m.options.length - 1; m.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )
        person.settle()
        assert person.look(f"#{section}") != before, menu


@pytest.mark.parametrize("section", ["spectra", "tokens"])
def test_the_layer_slider_moves_with_the_keyboard_and_plays(person: Person, section: str) -> None:
    before = person.look(f"#{section}")
    # the spectra begin with the first layer, the tokens with the last, where models differ most
    person.press("ArrowRight" if section == "spectra" else "ArrowLeft", f"#{section} input[type=range]")
    assert person.look(f"#{section}") != before
    assert person.text(f"#{section} output") == "1"
    person.click(f"#{section} .play")
    assert person.text(f"#{section} .play") == "Pause"
    person.until(f"document.querySelector('#{section} .play').textContent === 'Play'")
    slider = f"document.querySelector('#{section} input[type=range]')"
    assert person.evaluate(f"{slider}.value === {slider}.max")


def test_hovering_tells_layer_point_and_value(person: Person) -> None:
    person.hover("#depth .panel svg.chart")
    assert person.evaluate("document.querySelector('.tip').classList.contains('open')")
    said = person.text(".tip")
    model = "window.unsmooth.data.models[0]"
    value = person.evaluate(f"{model}.values.all.hfc_lfc.mean[{model}.points.indexOf('blocks.1.mid')]")
    assert "blocks.1.mid" in said
    assert f"{value:.4g}" in said
    person.press("ArrowRight", "#depth .panel svg.chart")
    assert person.text(".tip") != said
    person.press("Escape")
    assert not person.evaluate("document.querySelector('.tip').classList.contains('open')")


def test_the_legend_hides_a_model_everywhere_and_never_all(person: Person) -> None:
    seen = "[...document.querySelectorAll('{}')].filter((e) => e.getClientRects().length).length"
    curves = seen.format("#depth .panel:first-child svg > [data-model]")
    assert person.evaluate(curves) == 2
    person.click("#legend label:nth-child(2)")
    assert person.evaluate(curves) == 1
    assert person.evaluate(seen.format("#spectra .panel")) == 1
    assert person.evaluate(seen.format("#kinds-table tr[data-model]")) == 2  # attention and MLP of one model
    person.click("#legend label:nth-child(1)")
    assert person.evaluate(curves) == 1


def test_layers_are_counted_in_whole_numbers(person: Person) -> None:
    ticks = person.evaluate(
        "[...document.querySelectorAll('#depth svg.chart, #steps svg.chart, #exponent-charts svg.chart')]"
        ".filter((c) => c.getClientRects().length)"
        ".flatMap((c) => [...c.querySelectorAll('text[text-anchor=middle][y]')])"
        ".map((t) => t.textContent).filter((t) => !/layer/.test(t))"
    )
    assert len(ticks) > 6
    assert all(tick.isdigit() for tick in ticks), ticks


def test_dark_and_light(person: Person) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = person.evaluate(paper)
    person.click("#theme")
    dark = person.evaluate(paper)
    assert light != dark
    person.click("#theme")
    assert person.evaluate(paper) == light


def test_nothing_sticks_out_at_phone_width(browser: Person, page: Path) -> None:
    browser.read(page, 375, 800, mobile=True)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 375
    assert browser.problems() == []


def test_printing_says_what_the_controls_are_set_to_and_is_light(person: Person) -> None:
    person.evaluate("document.documentElement.dataset.theme = 'dark'")
    person.send("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        shown = person.evaluate(
            "[...document.querySelectorAll('.toolbar :is(label, button, input, legend, select, output)')]"
            ".filter((e) => e.checkVisibility()).map((e) => [e.tagName, e.innerText.trim(), e.closest('section').id])"
        )
        assert not {"BUTTON", "INPUT"} & {tag for tag, _, _ in shown}
        assert [text for _, text, section in shown if section == "depth"][:4] == ["Tokens", "all", "Scale", "linear"]
        corners = "getComputedStyle(document.querySelector('.toolbar select')).borderRadius"
        assert person.evaluate(corners) == "0px"  # round ones cut letters off
        assert ["LABEL", "Model", "steps"] in shown  # without it nothing tells whose steps they are
        assert person.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        # Paper is narrow and nothing is drawn again: measured before any script hears of the new width.
        beyond = person.evaluate(
            "(() => { const main = document.querySelector('main'); main.style.width = '700px';"
            "const edge = main.getBoundingClientRect().right;"
            "return [...main.querySelectorAll('svg, img')]"
            ".filter((e) => e.getClientRects().length && !e.closest('.scroll'))"
            ".map((e) => e.getBoundingClientRect().right - edge).filter((far) => far > 0.5); })()"
        )
        assert beyond == []
    finally:
        person.send("Emulation.setEmulatedMedia", {"media": ""})


def test_every_control_can_be_reached_by_tab_and_has_a_name(person: Person) -> None:
    nameless = person.evaluate(
        "[...document.querySelectorAll('button, select, input')]"
        ".filter((e) => !(e.labels && e.labels.length) && !e.textContent.trim()).length"
    )
    assert nameless == 0
    named = "(e) => e.getAttribute('aria-label') || e.getAttribute('aria-hidden')"
    assert person.evaluate(f"[...document.querySelectorAll('svg.chart')].every({named})")
    assert person.evaluate("[...document.querySelectorAll('[data-chart]')].every((e) => e.tabIndex === 0)")
    assert person.evaluate("document.querySelectorAll('[tabindex=\"-1\"]').length") == 0


def test_the_downloads_hold_what_was_measured(person: Person) -> None:
    person.evaluate(
        "window.saved = [];"
        "URL.createObjectURL = (blob) => { blob.text().then((t) => window.saved.push(t)); return 'blob:x'; };"
        "HTMLAnchorElement.prototype.click = function () { window.savedName = this.download; }"
    )
    for file in ("results.json", "measurements.csv"):
        person.evaluate("window.saved = []")
        person.click(f"[data-download='{file}']")
        person.until("window.saved.length === 1")
        text = person.evaluate("window.saved[0]")
        assert person.evaluate("window.savedName") == f"unsmooth-{file}"
        if file.endswith("json"):
            assert [model["name"] for model in json.loads(text)] == ["plain", EVIL]
        else:
            assert text.startswith("point,metric,tokens,mean")


def test_a_link_of_a_finding_sets_the_switches_of_its_figure(person: Person) -> None:
    wanted = {"tokens": "no-outliers", "metric": "stable_rank", "model": EVIL, "reading": "chain"}
    for figure in ("steps", "depth"):
        view = json.dumps({k: v for k, v in wanted.items() if figure == "steps" or k in ("tokens", "metric")})
        person.evaluate(
            f"(() => {{ const a = document.createElement('a'); a.href = '#{figure}'; a.textContent = 'see';"
            f"a.dataset.view = {json.dumps(view)}; a.id = 'to-{figure}';"
            "document.querySelector('.findings').append(a); })()"
        )
    person.click("#to-steps")
    value = "document.querySelector('#steps-{}').value"
    assert person.evaluate(value.format("metric")) == "stable_rank"
    assert person.evaluate(value.format("model")) == "1"
    shown = "#steps-chart > [data-when]:not([hidden])"
    assert person.evaluate(f"[...document.querySelectorAll('{shown}')].map((e) => e.dataset.when)") == [
        "reading=chain tokens=no-outliers metric=stable_rank model=1"
    ]
    assert person.evaluate("Math.abs(document.querySelector('#steps').getBoundingClientRect().top) < 400")
    person.click("#to-depth")
    assert person.evaluate("document.querySelector('#depth-metric-2').value") == "stable_rank"
    assert person.evaluate("document.querySelector('#depth-metric-0').value") == "hfc_lfc"
    assert "no-outliers" in person.evaluate(
        "document.querySelector('#depth [data-when]:not([hidden]) svg').getAttribute('aria-label')"
    )
    assert person.problems() == []


def test_without_a_script_the_figures_are_there_and_the_switches_are_not(browser: Person, page: Path) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.resize(1280, 900)
        browser.open(page)
        tall = "document.querySelector('{}').getBoundingClientRect().height"
        for figure in (
            "#depth-charts",
            "#steps-chart",
            "#spectra-charts",
            "#histogram-charts",
            "#heads-charts",
            "#token-views",
        ):
            assert browser.evaluate(tall.format(figure)) > 150, figure
        assert browser.evaluate(tall.format(".toolbar")) == 0
        assert browser.evaluate("document.querySelectorAll('#steps-chart > :not([hidden])').length") == 1
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", {"value": False})
