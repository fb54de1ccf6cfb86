"""Tables of an explanation for people, cell by cell."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch
from cli.tables.printed import rows, text
from rich.console import Console
from small_models import bert, images, vit, words

from unsmooth.analysis import Explanation, explain
from unsmooth.analysis.explaining.tables import eigenvalue_table
from unsmooth.cli.tables import explained as tables
from unsmooth.cli.tables.layout import written
from unsmooth.page.words.phrases import percent_text


@pytest.fixture(scope="module")
def explained() -> Explanation:
    torch.manual_seed(0)
    return explain(vit(depth=2), images(2), spectra=2)


def test_predictions_of_a_layer_are_means_over_inputs(explained: Explanation) -> None:
    shown = rows(tables.by_layer(explained, tables._PREDICTED, "title"))
    frame = explained.by_layer(full=True)
    assert shown[0] == ["layer", "γ", "γ small step", "measured Δlog HFC/LFC", "sign agrees", "log ρ_H",
                        "measured log HFC gain"]  # fmt: skip
    for row, (_, known) in zip(shown[1:], frame.iterrows(), strict=True):
        assert row == [
            f"{known['layer']:.0f}",
            *(written(known[name], spec) for name, _, spec in tables._PREDICTED),
        ]


def test_without_spectra_of_attention_their_columns_are_left_out() -> None:
    none = explain(vit(depth=1), images(1), spectra=0)
    assert rows(tables.by_layer(none, tables._HEADS, "t"))[0] == ["layer", "entropy/log n", "alignment"]


def test_eigenvalues_of_a_layer_before_and_after_folding(explained: Explanation) -> None:
    heading, *shown = rows(tables.eigenvalues(explained))
    frame = eigenvalue_table(explained)
    assert heading == list(tables._EIGENVALUES)
    assert [row[:2] for row in shown] == [["0", "bare"], ["0", "folded"], ["1", "bare"], ["1", "folded"]]
    for row, known in zip(shown, frame.to_dict("records"), strict=True):
        shares = [f"{known[name]:.0%}" for name in ("re_negative", "re_positive", "re_outside", "complex")]
        ends = [f"{known['max_real']:+.3f}", f"{known['min_real']:+.3f}"]
        assert row[2:] == [*shares, *ends, f"{known['condition']:.2g}", f"{known['departure']:.2f}"]


@pytest.mark.parametrize(("kind", "how"), [("paper_kind", "as on the poster"), ("kind", "folded H, step s")])
def test_types_are_counted_over_heads_and_inputs(explained: Explanation, kind: str, how: str) -> None:
    table = tables.types(explained, kind)
    heads = explained.head_frame()
    heads = heads[heads[kind].notna()]  # of the inputs whose spectra were computed
    assert how in str(table.title)
    assert f"{len(heads)} heads × inputs, 2 inputs" in str(table.title)
    endpoint = heads["endpoint" if kind == "kind" else "paper_endpoint"]
    heading, *shown = rows(table)
    assert heading == ["", "share", "95 % interval", "neither endpoint"]
    assert [row[0] for row in shown] == ["type (1) smoothing", "type (2) sharpening", "both tie mixed"]
    for row in shown:
        name = row[0].rpartition(" ")[2]
        assert row[3] == f"{((heads[kind] == name) & (endpoint == 'neither')).mean():.2%}"
        assert row[1] == f"{(heads[kind] == name).mean():.2%}"
        low, high = (float(end.strip(" %")) / 100 for end in row[2].split("–"))
        assert low <= (heads[kind] == name).mean() + 1e-3
        assert high >= (heads[kind] == name).mean() - 1e-3


def test_predictors_are_shown_beside_what_they_predict(explained: Explanation) -> None:
    frame = explained.predictions(full=True).set_index("predictor")
    chosen = explained.predictions(full=True).query("measured == 'measured_hfc'")
    heading, *shown = rows(tables.predictions(chosen, "a title"))
    names = {tables._NAMES[name]: name for name in frame[frame["measured"] == "measured_hfc"].index}
    assert [row[0] for row in shown] == list(names)
    assert heading[5:8] == ["right", "majority", "Spearman"]
    for row in shown:
        known = frame.loc[names[row[0]]]
        counts = ("both_up", "only_predicted_up", "only_measured_up", "both_down")
        assert row[1:5] == [str(known[name]) for name in counts]
        assert row[5:8] == [f"{known['accuracy']:.0%}", f"{known['majority']:.0%}", written(known["spearman"], "+.2f")]


def test_footnotes_name_layers_that_overshoot_notes_and_interruptions(explained: Explanation) -> None:
    assert "overshoot" not in text(tables.footnotes(explained))
    assert "4 inputs; means over inputs" in text(tables.footnotes(explained))
    spectra = [{**row, "layer_values": row["layer_values"] - 1e3} for row in explained.spectra]
    far = Explanation(
        explained.layers,
        explained.heads,
        explained.weights,
        spectra,
        explained.about,
        partial=True,
        notes=["mind this"],
    )
    shown = text(tables.footnotes(far))
    assert f"note: 2 layers overshoot (s·λ down to {min(far.overshooting().values()):.2g}, below −2)" in shown
    assert "Corollary 3 promises sharpening for s·λ in [−1, 0) only, and below it A decides" in shown
    assert "note: mind this" in shown
    assert "PARTIAL" in shown


def test_everything_is_shown_in_order_and_types_only_where_spectra_are_known(explained: Explanation) -> None:
    def shown(found: Explanation) -> list[str]:
        console = Console(file=io.StringIO(), width=200)
        tables.show(found, console, full=True)
        said = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
        wanted = ("VisionTransformer on data, ", "Heads, attention and tokens", "Eigenvalues of H", "(as on the poster",
                  "zero eigenvalues counted", "Δlog HFC/LFC, predicted", "log HFC gain, predicted",
                  "; means over inputs", "Attention lowers HFC/LFC")  # fmt: skip
        places = {words: said.index(words) for words in wanted if words in said}
        assert sorted(places, key=lambda words: places[words]) == list(places)
        return list(places)

    assert len(shown(explained)) == 9
    without = shown(explain(vit(depth=1), images(1), spectra=0))
    assert len(without) == 7
    assert "(as on the poster" not in without


def test_at_first_every_column_that_is_shown_has_its_definition_and_no_other(explained: Explanation) -> None:
    brief, everything = text(tables.footnotes(explained, full=False)), text(tables.footnotes(explained))
    for heading in tables._DEFINED.values():
        assert f"{heading}: " in everything
    assert "γ (exponent): " in brief
    assert "fixed point: " not in brief
    assert {row[1] for row in rows(tables.eigenvalues(explained, full=False))[1:]} == {"folded"}


def test_the_words_are_those_of_the_numbers(explained: Explanation) -> None:
    said, frame, found = tables.found_in(explained), explained.frame(), explained.agreement()
    falls = int((frame["measured_ratio"] < 0).sum())
    assert f"Attention lowers HFC/LFC, which smooths, in {falls} of {len(frame)} layers × inputs." in said
    one_sign = found.majority == 1
    assert (f"is right in {percent_text(found.accuracy)};" in said) == (not one_sign)
    assert "Attention with the norm after it lowers" in tables.found_in(explain(bert(), words(1), spectra=0))
    assert ("no better than guessing" in said) == (found.accuracy <= found.majority and not one_sign)


def test_of_steps_that_all_have_one_sign_gamma_is_not_held_against_guessing(explained: Explanation) -> None:
    falling = replace(explained, layers=[{**row, "measured_ratio": -0.1} for row in explained.layers])
    said = tables.found_in(falling)
    assert f"same sign; γ, the predicted exponent, has it in {percent_text(falling.agreement().accuracy)}." in said
    assert "guessing" not in said
