"""A test that holds: what a conformal test flags at a level, the paper's test beside it, and an alarm on a stream."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from .choices import TESTED_LEVELS
from .claims import LEVEL
from .parts import NOTHING, Cell, ContrastRow, Figure, Table, Topic, present
from .results import Results
from .stream import describe_stream, stream_figure, stream_sentences
from .words import FEW, distinct_names, listed, number, p_text, percent, quoted, short_percent, symbol

PAPER = "paper’s test"
INTRODUCTION = (
    "The conformal p-value of a sample is the rank of its score among held-out samples. Of samples that are like the "
    "held-out ones, at most the level is flagged on average, whatever the network is. Valid is not powerful: how many "
    "unfamiliar samples are flagged depends on the score."
)
FALSE_NULL = "The paper’s test does not hold its level, because its null hypothesis is false for three classes or more."
TRUE_NULL = "The paper’s test finds nothing where there are two classes, because the gap is then always 0."


def introduction(results: Results) -> str:
    """What the test is, and what it was calibrated on."""
    rows = results.screening
    paper = FALSE_NULL if results.settings["classes"] > 2 else TRUE_NULL
    where = f" Here the test is calibrated on {_held_out(results, rows.iloc[0])}." if len(rows) else ""
    return f"{INTRODUCTION} {paper}{where}"


def _held_out(results: Results, row: Any) -> str:
    known, samples = quoted(results.known), f"{int(row['held_out_samples']):,} samples"
    return f"the {samples} of {quoted(row['held_out'])}" if row["held_out"] else f"{samples}, a random half of {known}"


def at_level(results: Results, alpha: float, test: str, score: str = "") -> Any:
    """The rows of a test at one level."""
    table = results.screening
    return table[(table["alpha"] == alpha) & (table["test"] == test) & (table["score"] == score)]


def tested_scores(results: Results) -> list[str]:
    """The scores that the conformal test compares."""
    return distinct_names(results.screening["score"])


def flagged_table(alpha: float, results: Results) -> Table | None:
    """The share of each set that each test flags at one level."""
    scores = tested_scores(results)
    if not scores:
        return None
    tests = [at_level(results, alpha, "conformal", score) for score in scores] + [at_level(results, alpha, "paper")]
    rows = []
    for place, (_, row) in enumerate(tests[-1].iterrows()):
        rows.append([Cell(str(row["set"]), f"n = {int(row['samples']):,}"), *(_cell(x.iloc[place]) for x in tests)])
    level = short_percent(alpha)
    heading = f"Flagged at level {level}, by score" if alpha == TESTED_LEVELS[0] else ""
    caption = f"Share of samples that the conformal test of each score, and the paper’s test, flag at level {level}"
    return Table(f"{caption}, with 95 % intervals", ["set", *map(symbol, scores), PAPER], rows, heading)


def _cell(row: Any) -> Cell:
    return NOTHING if math.isnan(row["flagged"]) else Cell(percent(row["flagged"]), _interval(row, "flagged"))


def _interval(row: Any, column: str) -> str:
    low, high = (100 * row[f"{column}_{end}"] for end in ("low", "high"))
    return f"{number(low, 1)} to {number(high, 1)} %"


def threshold_table(results: Results) -> Table | None:
    """The thresholds of the first score at the common levels."""
    table = results.thresholds
    if not len(table):
        return None
    score = table.iloc[0]["score"]
    rows = []
    for alpha, pair in table[table["score"] == score].groupby("alpha", sort=False):
        (_, plain), (_, sure) = pair.iterrows()
        cells = [c for row in (plain, sure) for c in _threshold_cells(row)]
        rows.append([Cell(short_percent(float(alpha))), *cells])
    chance = short_percent(float(table["confidence"].max()))
    titles = ["level", "below", "false alarms", f"below, {chance} sure", f"false alarms, {chance} sure"]
    caption = (
        f"Flag samples whose {symbol(score)} is below the threshold. The mean of the false-alarm rate is at most the "
        f"level; with the second threshold, the rate itself is so for {chance} of all sets of held-out samples. The "
        "ranges hold 95 % of these sets"
    )
    return Table(caption, titles, rows)


def _threshold_cells(row: Any) -> list[Cell]:
    if math.isnan(row["threshold"]):
        return [NOTHING, NOTHING]
    rate = f"{number(100 * row['rate'], 2)} %"
    low, high = (number(100 * row[f"rate_{end}"], 2) for end in ("low", "high"))
    return [Cell(number(row["threshold"], 3)), Cell(rate, f"{low} to {high} %")]


def flagged_sentence(results: Results) -> Iterable[str]:
    """What is flagged at the first level by the first score, and what the paper's test rejects."""
    scores, alpha = tested_scores(results), TESTED_LEVELS[0]
    if not scores:
        return
    known, *others = (row for _, row in at_level(results, alpha, "conformal", scores[0]).iterrows())
    rejected = at_level(results, alpha, "paper").iloc[0]["flagged"]
    paper = f"the paper’s test rejects {percent(rejected)} of {quoted(known['set'])}"
    if math.isnan(known["flagged"]):
        few = f"With {known['held_out_samples']:,} held-out samples nothing can be flagged"
        yield f"{few} at level {short_percent(alpha)}; {paper}."
        return
    said = [f"{_value(known)} of {quoted(known['set'])}", *_others(others)]
    flags = f"At level {short_percent(alpha)} the conformal test of {symbol(scores[0])} flags {listed(said)}; {paper}."
    yield " ".join([flags, *_power(others, alpha)])


def _value(row: Any) -> str:
    return f"{percent(row['flagged'])} ({_interval(row, 'flagged')})"


def _others(rows: list[Any]) -> list[str]:
    if len(rows) <= FEW:
        return [f"{_value(row)} of {quoted(row['set'])}" for row in rows]
    shares = [row["flagged"] for row in rows]
    return [f"{percent(min(shares))} to {percent(max(shares))} of each of {len(rows)} OOD sets"]


def _power(rows: list[Any], alpha: float) -> Iterable[str]:
    """What a valid test does not find, in one sentence."""
    blind = [quoted(row["set"]) for row in rows if row["flagged_low"] <= alpha]
    weak = [row for row in rows if row["flagged_low"] > alpha and row["flagged_high"] < 0.5]
    said = []
    if weak:
        missed = listed([f"{percent(1 - row['flagged'])} of {quoted(row['set'])}" for row in weak[:FEW]])
        more = f" (and most of {len(weak) - FEW} more OOD sets)" if len(weak) > FEW else ""
        said.append(f"{missed}{more} are not flagged")
    if blind:
        shown = f"of {listed(blind)} no more than the level is shown to be flagged"
        said.append(f"{shown}, so this score does not tell single samples there from familiar ones")
    if said:
        yield f"Valid is not powerful: {'; '.join(said)}."


def broken_sentence(results: Results) -> Iterable[str]:
    """A warning if more of the test set is flagged than chance explains.

    Two random halves of one set are alike: what is flagged of them beyond the level is chance.
    """
    table = results.screening[results.screening["chance"].notna() & (results.screening["held_out"] != "")]
    if not len(table):
        return
    row = table.loc[table["chance"].idxmin()]
    corrected = min(1.0, row["chance"] * len(table))
    if corrected < LEVEL:
        yield (
            f"The level does not hold: at level {short_percent(row['alpha'])} the conformal test of "
            f"{symbol(row['score'])} flags {_value(row)} of {quoted(row['set'])}, more than chance explains "
            f"(p {p_text(corrected)}). The held-out samples {quoted(row['held_out'])} are not like it."
        )


def _contrast() -> Iterable[ContrastRow]:
    level = short_percent(TESTED_LEVELS[0])
    for title, kind in (("ID", "id"), ("OOD", "ood")):
        yield Cell(f"flagged at {level}, {title}"), partial(_first, kind, _conformal)
    yield Cell(f"{PAPER} at {level}, ID"), partial(_first, "id", _paper)


def _conformal(results: Results) -> Any:
    return at_level(results, TESTED_LEVELS[0], "conformal", next(iter(tested_scores(results)), ""))


def _paper(results: Results) -> Any:
    return at_level(results, TESTED_LEVELS[0], "paper")


def _first(kind: str, rows_of: Callable[[Results], Any], results: Results) -> Cell:
    rows = rows_of(results)
    rows = rows[rows["kind"] == kind]
    return _cell(rows.iloc[0]) if len(rows) else NOTHING


SCREENING = Topic(
    "A test that holds",
    introduction,
    lambda results: present(*(flagged_table(alpha, results) for alpha in TESTED_LEVELS), threshold_table(results)),
    (
        Figure(
            "stream",
            stream_figure,
            "The evidence of a drift monitor over a stream that turns from the test set to an OOD set. Without drift "
            "it ever reaches the alarm line with a chance of at most α.",
            describe_stream,
        ),
    ),
    sentences=(flagged_sentence, broken_sentence),
    details=(stream_sentences,),
    contrast=_contrast,
    glossary=(("flagged", "samples with a conformal p-value of at most the level, which a person should look at."),),
)
