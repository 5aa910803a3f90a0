"""The section about the conformal test: it claims no more than its intervals allow."""

import dataclasses
import math

import pandas as pd
import pytest

from tests.report.cases import LEAK, NAN, make_results
from torch_boc.report.screening import SCREENING, screening_tables, stream_figure
from torch_boc.report.topics import verdict


def changed(results, where, **values):
    table = results.screening.copy()
    rows = table.eval(where)
    assert rows.any(), where
    for column, value in values.items():
        table.loc[rows, column] = value
    return dataclasses.replace(results, screening=table)


def sentences(results, word):
    return [text for text in verdict(results) if word in text]


def flags(results):
    (text,) = sentences(results, "conformal test of log odds flags")
    return text


def power(low, share, high):
    where = "kind == 'ood' and score == 'log_odds' and alpha == 0.05"
    return changed(make_results(), where, flagged=share, flagged_low=low, flagged_high=high)


def cells(table):
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}


def test_the_tables():
    results = make_results(("held out",))
    assert screening_tables(results)[0].columns == ["set", "log odds", "energy", "paper’s test"]
    assert cells(screening_tables(results)[0]) == {
        "test": ["4.7 %", "5.0 %", "12.8 %"],
        "svhn": ["27.0 %", "30.5 %", "67.0 %"],
    }
    assert screening_tables(results)[0].rows[0][1].small == "4.1 to 5.3 %"
    assert screening_tables(results)[0].heading
    assert not screening_tables(results)[1].heading  # the terminal has no room for it
    assert cells(screening_tables(results)[2])["0.1 %"] == ["1.060", "0.10 %", "0.860", "0.09 %"]


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        (("held out",), "calibrated on the 5,000 samples of “held out”."),
        ((LEAK,), "calibrated on 5,000 samples, a random half of “test”."),
    ],
)
def test_the_text_says_what_it_was_calibrated_on(splits, words):
    assert SCREENING.text(make_results(splits)).endswith(words)


def test_two_classes_are_not_told_that_the_null_is_false():
    results = make_results()
    two = dataclasses.replace(results, settings={**results.settings, "classes": 2})
    assert "null hypothesis is false" in SCREENING.text(results)
    assert "null hypothesis is false" not in SCREENING.text(two)


def test_a_power_that_is_not_above_the_level_is_no_power():
    text = flags(power(0.049, 0.053, 0.058))
    assert "of “svhn” no more than the level is shown to be flagged" in text
    assert "not flagged" not in text


def test_a_weak_test_says_what_it_misses_and_a_strong_one_says_nothing():
    assert flags(power(0.10, 0.106, 0.11)).endswith("Valid is not powerful: 89.4 % of “svhn” are not flagged.")
    assert "powerful" not in flags(power(0.84, 0.85, 0.86))
    assert "powerful" not in flags(power(0.49, 0.52, 0.55))  # half of it may be flagged, or more


def test_too_few_held_out_samples():
    results = changed(
        make_results(), "test == 'conformal'", flagged=NAN, flagged_low=NAN, flagged_high=NAN, held_out_samples=9
    )
    (text,) = sentences(results, "nothing can be flagged")
    assert text.startswith("With 9 held-out samples nothing can be flagged at level 5 %; the paper’s test rejects")
    assert cells(screening_tables(results)[0])["test"] == ["–", "–", "12.8 %"]


def test_a_level_that_does_not_hold_is_told_after_correction():
    where = "kind == 'id' and score == 'energy' and alpha == 0.05"
    assert not sentences(changed(make_results(("val",)), where, chance=0.02), "does not hold: at")  # of 4 comparisons
    assert not sentences(changed(make_results(), where, chance=1e-5), "does not hold: at")  # halves are alike
    (text,) = sentences(changed(make_results(("val",)), where, chance=1e-5), "does not hold: at")
    assert "(p = 4.0e−05). The held-out samples “val” are not like it." in text


def test_many_sets_share_a_sentence():
    results = make_results((), ("a", "b", "c"))
    assert "and 27.0 % to 27.0 % of each of 3 OOD sets;" in flags(results)
    (text,) = sentences(results, "stream")
    assert text.startswith("In 3 of 3 streams that turn from “test” to an OOD set, the alarm comes 31 samples later")


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (lambda sample: -1.0, "there is no alarm within the 200 samples that follow"),
        (lambda sample: 5.0 if sample >= 20 else 0.0, "there is a false alarm at sample 20"),
        (lambda sample: math.log(100) if sample == 301 else 0.0, "the alarm comes 1 sample later"),
    ],
)
def test_the_alarm_of_a_stream(evidence, words):
    results = make_results()
    table = results.stream.assign(evidence=results.stream["sample"].map(evidence))
    (text,) = sentences(dataclasses.replace(results, stream=table), "stream")
    assert words in text


def test_the_figure_marks_the_change_and_the_alarm():
    (axis,) = stream_figure(make_results()).axes
    texts = [text.get_text() for text in axis.get_legend().get_texts()]
    assert texts == ["svhn: alarm at sample 331", "alarm line, 1/α = 100", "change after sample 300"]
    lines = {line.get_label(): line for line in axis.lines}
    assert list(lines["alarm line, 1/α = 100"].get_ydata()) == pytest.approx([2, 2])
    assert list(lines["change after sample 300"].get_xdata()) == [300.5, 300.5]
    (mark,) = [line for line in axis.lines if line.get_marker() == "o"]
    assert list(mark.get_xdata()) == [331]


def test_without_numbers_there_is_no_section():
    results = make_results()
    empty = {name: getattr(results, name).iloc[:0] for name in ("screening", "thresholds", "stream")}
    bare = dataclasses.replace(results, **empty)
    assert SCREENING.tables(bare) == []
    assert stream_figure(bare) is None
    assert not sentences(bare, "conformal")
    assert [cell(bare).text for _, cell in SCREENING.contrast()] == ["–", "–", "–"]


def test_side_by_side():
    found = {name.text: cell(make_results()).text for name, cell in SCREENING.contrast()}
    assert found == {
        "flagged at 5 %, ID": "4.7 %",
        "flagged at 5 %, OOD": "27.0 %",
        "paper’s test at 5 %, ID": "12.8 %",
    }
    assert pd.notna(list(found.values())).all()
