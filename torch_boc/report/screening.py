"""A test that holds: what a conformal test flags at a level, the paper's test beside it, and an alarm on a stream."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from ..plots import CYCLE, GREY
from .axes import SETS, figure_text, finish, panels
from .parts import NOTHING, Cell, ContrastRow, Figure, Table, Topic
from .tables import Results
from .words import (
    FEW,
    LEVEL,
    TESTED_LEVELS,
    distinct_names,
    listed,
    number,
    p_text,
    percent,
    quoted,
    short_percent,
    symbol,
)

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
    paper = FALSE_NULL if results.settings["classes"] > 2 else TRUE_NULL
    where = ""
    if len(results.screening):
        row = results.screening.iloc[0]
        samples = f"{int(row['held_out_samples']):,} samples"
        half = f"{samples}, a random half of {quoted(results.known)}"
        split = f"the {samples} of {quoted(row['held_out'])}"
        where = f" Here the test is calibrated on {split if row['held_out'] else half}."
    return f"{INTRODUCTION} {paper}{where}"


def at_level(results: Results, alpha: float, test: str, score: str = "") -> Any:
    """The rows of a test at one level."""
    table = results.screening
    return table[(table["alpha"] == alpha) & (table["test"] == test) & (table["score"] == score)]


def tested_scores(results: Results) -> list[str]:
    """The scores that the conformal test compares."""
    return distinct_names(results.screening["score"])


def screening_tables(results: Results) -> list[Table]:
    """What is flagged at each level, and the thresholds."""
    if not tested_scores(results):
        return []
    return [*(_flagged(alpha, results) for alpha in TESTED_LEVELS), _thresholds(results)]


def _flagged(alpha: float, results: Results) -> Table:
    """The share of each set that each test flags at one level."""
    scores = tested_scores(results)
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


def _thresholds(results: Results) -> Table:
    """The thresholds of the first score at the common levels."""
    table = results.thresholds
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
        yield Cell(f"flagged at {level}, {title}"), partial(_first, "conformal", kind)
    yield Cell(f"{PAPER} at {level}, ID"), partial(_first, "paper", "id")


def _first(test: str, kind: str, results: Results) -> Cell:
    """What is flagged of the first set of a kind, by the first score or by the paper's test."""
    score = next(iter(tested_scores(results)), "") if test == "conformal" else ""
    rows = at_level(results, TESTED_LEVELS[0], test, score)
    rows = rows[rows["kind"] == kind]
    return _cell(rows.iloc[0]) if len(rows) else NOTHING


def _streams(results: Results) -> list[tuple[str, Any]]:
    """The streams by OOD set."""
    table = results.stream
    return [(name, table[table["ood"] == name]) for name in distinct_names(table["ood"])[:SETS]]


def _alarm(rows: Any) -> Any:
    """The row of the alarm, or None."""
    reached = rows[rows["evidence"] >= -rows["alpha"].map(math.log)]
    return reached.iloc[0] if len(reached) else None


def _course(results: Results, name: str, rows: Any) -> str:
    """What happens in a stream, in words."""
    known = int((rows["kind"] == "id").sum())
    turn = f"turns from {quoted(results.known)} to {quoted(name)} after {known:,} samples"
    alarm = _alarm(rows)
    if alarm is None:
        return f"{turn}, there is no alarm within the {len(rows) - known:,} samples that follow"
    if alarm["kind"] == "id":
        return f"{turn}, there is a false alarm at sample {int(alarm['sample']):,}"
    later = int(alarm["sample"]) - known
    return f"{turn}, the alarm comes {later:,} {'sample' if later == 1 else 'samples'} later"


def stream_sentences(results: Results) -> Iterable[str]:
    """When the alarm comes in a stream; one sentence for many OOD sets."""
    streams = _streams(results)
    if not streams:
        return
    chance = f"(chance of a false alarm: at most {short_percent(float(results.stream['alpha'].iloc[0]))})"
    if len(streams) <= FEW:
        yield from (f"In a stream that {_course(results, name, rows)} {chance}." for name, rows in streams)
        return
    delays = [delay for _, rows in streams if (delay := _delay(rows)) is not None]
    which = f"streams that turn from {quoted(results.known)} to an OOD set"
    if delays:
        ends = dict.fromkeys([f"{min(delays):,}", f"{max(delays):,}"])
        later = f"{' to '.join(ends)} samples later"
        yield f"In {len(delays)} of {len(streams)} {which}, the alarm comes {later} {chance}."
    else:
        yield f"In none of {len(streams)} {which}, the alarm comes after the change {chance}."


def _delay(rows: Any) -> int | None:
    """How many samples after the change the alarm comes; None if it does not, or comes before."""
    alarm = _alarm(rows)
    return None if alarm is None or alarm["kind"] == "id" else int(alarm["sample"]) - int((rows["kind"] == "id").sum())


def stream_figure(results: Results) -> Any:
    """The evidence over a stream that turns from the test set to an OOD set."""
    streams = _streams(results)
    if not streams:
        return None
    figure, (axis,) = panels(1)
    for (name, rows), colour in zip(streams, CYCLE, strict=False):
        alarm, known = _alarm(rows), int((rows["kind"] == "id").sum())
        late = "no alarm" if alarm is None else f"alarm at sample {int(alarm['sample']):,}"
        evidence = rows["evidence"] / math.log(10)
        axis.plot(rows["sample"], evidence, color=colour, linewidth=1.4, label=f"{figure_text(name)}: {late}")
        if alarm is not None:
            axis.plot([alarm["sample"]], [alarm["evidence"] / math.log(10)], "o", color=colour, markersize=6)
    limit = -math.log10(rows["alpha"].iloc[0])
    axis.axhline(limit, color=GREY, linewidth=1, linestyle="--", label=f"alarm line, 1/α = {10**limit:g}")
    axis.axvline(known + 0.5, color=GREY, linewidth=1, linestyle=":", label=f"change after sample {known:,}")
    axis.set(xlabel="sample of the stream", ylabel="evidence")
    axis.locator_params(axis="y", integer=True)
    axis.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:.0f}}}$")
    # The legend is below the axis, because it would hide the alarm line.
    return finish(figure, [axis], "upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def _describe(results: Results) -> str:
    """When the alarm comes in each stream, for people who cannot see the figure."""
    parts = [f"in one that {_course(results, name, rows)}" for name, rows in _streams(results)]
    return f"Evidence over streams of samples: {'; '.join(parts)}"


SCREENING = Topic(
    "A test that holds",
    introduction,
    screening_tables,
    (
        Figure(
            "stream",
            stream_figure,
            "The evidence of a drift monitor over a stream that turns from the test set to an OOD set. Without drift "
            "it ever reaches the alarm line with a chance of at most α.",
            _describe,
        ),
    ),
    sentences=(flagged_sentence, broken_sentence),
    details=(stream_sentences,),
    contrast=_contrast,
    glossary=(("flagged", "samples with a conformal p-value of at most the level, which a person should look at."),),
)
