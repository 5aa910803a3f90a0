"""How much should a person see, and has the input changed: review, the conformal test, and an alarm on a stream."""

import math
from typing import Any

from .parts import Cell, Section, Table, cells, make_table
from .svg import BLUE, COLOURS, ORANGE, SETS, Chart
from .tables import Results, where
from .words import FEW, LEVEL, PERCENT, between, called, listed, p_text, percent, short_percent, span, value_text

# The largest share of the test set in the figure; the slider goes further.
MOST_REVIEWED = 0.3
PAPER = "paper’s test"


def knee(results: Results) -> float:
    """The share for a person to see, beyond which more effort finds less: of the errors, or of the first OOD set."""
    table = results.review[results.review["share"] <= MOST_REVIEWED].dropna(subset="caught")
    if not len(table):
        return math.nan
    table = where(table, set=table.iloc[0]["set"])
    gained = table["caught"] - table["share"] / table["share"].max() * table["caught"].max()
    return float(table.loc[gained.idxmax(), "share"])


def reviewed(results: Results, share: float) -> tuple[float, str]:
    """The accuracy of what is left if a person sees a share of the test set, and what is caught, in words."""
    rows, caught = where(results.review, share=share), []
    for _, row in rows.dropna(subset="caught").head(1 + FEW).iterrows():
        caught.append(f"{percent(row['caught'])} of " + ("the errors" if row["kind"] == "id" else f"“{row['set']}”"))
    return float(rows["right"].iloc[0]), listed(caught)


def review(results: Results) -> Section:
    """Risk against coverage, what the conformal test flags, and thresholds."""
    share, sentences, more = knee(results), [], dict[str, Any]()
    note = "Risk against coverage: how many of the predictions that go out, the surest first, are wrong. "
    if len(results.acceptance):
        sentences.append(accepted_sentence(results))
        more["What may go out unseen at 1, 2 and 5 % error"] = [acceptance_table(results)]
        note += "The dot is what may go out with the promise."
    if share == share:
        right, caught = reviewed(results, share)
        rest = f"the rest is right {percent(right)} of the time, and " if right == right else ""
        sentences.append(f"If a person sees the least sure {short_percent(share)}, {rest}{caught} are caught.")
    if len(results.screening):
        sentences += flagged_sentences(results)
        levels = results.screening["alpha"].unique()
        more["Flagged at 5 % and 1 % false alarms, by score"] = [flagged_table(results, alpha) for alpha in levels]
        more["Thresholds for 10, 5, 1 and 0.1 % false alarms"] = [threshold_table(results)]
    return Section("How much should a person see?", sentences, review_chart(results), more=more, note=note)


def review_chart(results: Results) -> dict[str, tuple[Chart, str]]:
    """Risk against coverage, and what is accepted at the first error."""
    table = results.review.dropna(subset="right")
    if not len(table):
        return {}
    coverage, risk = 1 - table["share"], 1 - table["right"]
    most = max(float(risk.max()), 0.02) * 1.1
    chart = Chart("coverage: go out unseen", "risk: wrong, of these", (0, 1), (0, most), height=280)
    chart.line(coverage, risk, BLUE, results.known)
    alt = f"Risk against coverage: {percent(float(risk.iloc[0]))} are wrong if all go out"
    for _, row in results.acceptance[:1].iterrows():
        said = f"accepted at {short_percent(row['error'])} error: {percent(row['accepted'])}"
        alt += f"; {said}"
        chart.rule((0, 1), (row["error"], row["error"]))
        chart.name(said, f'<circle cx="8" cy="-4" r="4" fill="{ORANGE}"/>')
        if row["accepted"]:
            chart.dot(row["accepted"], row["wrong"], ORANGE, said, (row["wrong_low"], row["wrong_high"]))
    chart.rule((0, 0), (0, most), marks='id="cut"')
    return {"review": (chart, f"{alt}.")}


def accepted_sentence(results: Results) -> str:
    """What may go out unseen at the first error."""
    row = results.acceptance.iloc[0]
    error, chance = short_percent(row["error"]), short_percent(row["confidence"])
    if not row["accepted"]:
        many = f"{row['held_out_samples']:,} held-out samples"
        return f"Nothing may go out unseen at {error} error: too few of {many}, or too many of their mistakes are sure."
    promise = f"with a chance of {chance} at most {error} of these are wrong"
    return (
        f"{value_text(row, 'accepted', **PERCENT)} may go out unseen: {promise}, and here {percent(row['wrong'])} are."
    )


def acceptance_table(results: Results) -> Table:
    """What may go out unseen at each error."""
    table, odds = results.acceptance, results.acceptance["threshold"]
    table = table.assign(least=1 / (1 + (-odds[odds.abs() < math.inf]).map(math.exp)))
    return make_table(
        f"With a chance of {short_percent(table.iloc[0]['confidence'])}, at most so many of what goes out are wrong. "
        f"Calibrated on {held_out_text(results, table.iloc[0])}",
        {
            "at most wrong": list(map(short_percent, table["error"])),
            "goes out": cells(table, "accepted", **PERCENT),
            "of which are wrong": cells(table, "wrong", **PERCENT),
            "confidence from": cells(table, "least", 3),
        },
    )


def held_out_text(results: Results, row: Any) -> str:
    """The held-out samples of a row, in words."""
    name = f"“{row['held_out']}”" if row["held_out"] else f"a random half of “{results.known}”"
    return f"{row['held_out_samples']:,} samples, {name}"


def flagged(results: Results) -> Any:
    """What the first conformal test flags at the first level: the rows of the test set and of the first OOD set."""
    return where(results.screening, test="conformal", alpha=LEVEL).dropna(subset="flagged").drop_duplicates("kind")


def flagged_sentences(results: Results) -> list[str]:
    """What the conformal test of the first score flags at the first level, and whether its promise is kept."""
    table = where(results.screening, test="conformal")
    if not len(table):
        return []
    score = table.iloc[0]["score"]
    rows = where(table, score=score, alpha=LEVEL)
    known, others = rows.iloc[0], rows.iloc[1:]
    told, missed, blind = [], [], []
    for _, row in others.iterrows():
        name = f"“{row['set']}”"
        told.append(f"{value_text(row, 'flagged', **PERCENT)} of {name}")
        missed += [f"{percent(1 - row['flagged'])} of {name}"] if row["flagged_high"] < 0.5 else []
        # The interval does not know how the held-out samples vary, and with them the threshold.
        blind += [name] if row["chance"] * len(others) > LEVEL else []
    said = [f"{value_text(known, 'flagged', **PERCENT)} of “{known['set']}”"]
    said += [span(told, others["flagged"], percent)] if told else []
    but = f"; it keeps its promise, but {span(missed, 1 - others['flagged'], percent)} pass" if missed else ""
    but += f", and {listed(blind)} are not shown to be flagged more often than familiar samples" if blind else ""
    found = [f"At 5 % false alarms the conformal test of {called(score)} flags {listed(said)}{but}."]
    if math.isnan(known["flagged"]):
        found = [f"With {known['held_out_samples']:,} held-out samples nothing can be flagged at 5 % false alarms."]
    # Two random halves of one set are alike: what is flagged of them beyond the level is chance.
    table = where(table, kind="id").dropna(subset="chance").query("held_out != ''")
    if len(table) and table["chance"].min() * len(table) < LEVEL:
        row = table.loc[table["chance"].idxmin()]
        found.append(
            f"The promise is not kept: at {short_percent(row['alpha'])} false alarms the conformal test of "
            f"{called(row['score'])} flags {value_text(row, 'flagged', **PERCENT)} of “{row['set']}”, more than "
            f"chance explains (p {p_text(row['chance'] * len(table))}). The held-out samples “{row['held_out']}” "
            "are not like it."
        )
    return found


def flagged_table(results: Results, alpha: float) -> Table:
    """The share of each set that each test flags at one level; the paper's test is the last."""
    table, columns = where(results.screening, alpha=alpha), {}
    for score, rows in table.groupby("score", sort=False):
        columns["set"] = [Cell(name, f"n = {n:,}") for name, n in zip(rows["set"], rows["samples"], strict=True)]
        columns[called(score) if score else PAPER] = cells(rows, "flagged", **PERCENT)
    columns[PAPER] = columns.pop(PAPER)
    return make_table(
        f"Share of samples that the conformal test of each score flags at level {short_percent(alpha)}, with 95 % "
        f"intervals. It is calibrated on {held_out_text(results, table.iloc[0])}. The paper’s test does not hold its "
        "level",
        columns,
    )


def threshold_table(results: Results) -> Table:
    """The thresholds of the log odds, also as confidences."""
    table = where(results.thresholds, score="log_odds")
    table = table.assign(below=1 / (1 + (-table["threshold"]).map(math.exp)))
    columns, chance = dict[str, Any](), short_percent(table["confidence"].max())
    for sure, rows in table.groupby(table["confidence"].notna()):
        name = f", {chance} sure" if sure else ""
        columns["level"] = list(map(short_percent, rows["alpha"]))
        columns[f"confidence below{name}"] = cells(rows, "below", 3)
        columns[f"log odds below{name}"] = cells(rows, "threshold", 3)
        columns[f"false alarms{name}"] = cells(rows, "rate", 2, scale=100, unit=" %")
    return make_table(
        "Flag samples below the threshold. The mean of the false-alarm rate is at most the level; with the second "
        f"threshold, the rate itself is so for {chance} of all sets of held-out samples. The ranges hold 95 % of them",
        columns,
    )


def alarm_of(rows: Any) -> tuple[int, bool] | None:
    """How many samples after the change the alarm of a stream comes, or else at which sample, and whether it is late.

    None if there is no alarm.
    """
    reached = rows[rows["evidence"] >= -math.log(rows["alpha"].iloc[0])]
    if not len(reached):
        return None
    late = reached.iloc[0]["kind"] == "ood"
    return int(reached.iloc[0]["sample"] - late * (rows["kind"] == "id").sum()), late


def change(results: Results) -> Section | None:
    """When a monitor raises its alarm; one sentence for many OOD sets."""
    streams = results.stream.groupby("ood", sort=False)
    if not len(streams):
        return None
    alpha = float(results.stream["alpha"].iloc[0])
    known, limit = int((next(iter(streams))[1]["kind"] == "id").sum()), -math.log10(alpha)
    evidence = results.stream["evidence"] / math.log(10)
    drawn = results.stream[evidence.groupby(results.stream["ood"]).cummax() <= 2 * limit]  # what follows says no more
    ends = (0, int(drawn["sample"].max())), (min(-1.0, float(evidence.min())), 2 * limit)
    chart = Chart("samples, one after another", "evidence for a change (powers of 10)", *ends, percent="", height=240)
    chart.rule(ends[0], (limit, limit), f"alarm line: {10**limit:,.0f} to 1")
    chart.rule((known, known), ends[1])
    promise = f"(a false alarm comes with a chance of at most {short_percent(alpha)}, however long)"
    sentences, delays = [], []
    for (name, rows), colour in zip(streams, COLOURS[:SETS], strict=False):
        places = where(drawn, ood=name).index
        chart.line(rows["sample"].loc[places], evidence.loc[places], colour, name)
        said = f"No alarm within the {len(rows) - known:,} samples after “{name}” begins"
        if (alarm := alarm_of(rows)) is not None:
            at, late = alarm
            delays += [at] if late else []
            said = f"A false alarm at sample {at:,}, before “{name}” begins"
            said = f"Alarm {at:,} {'sample' if at == 1 else 'samples'} after “{name}” begins" if late else said
            chart.dot(at + late * known, limit, colour, said)
        sentences.append(f"{said} {promise}.")
    if len(sentences) > FEW:
        later = f", {between(delays, str)} samples later" if delays else ""
        sentences = [f"Alarm in {len(delays)} of {len(sentences)} streams that turn unfamiliar{later} {promise}."]
    note = f"The evidence of a monitor over a stream that turns from “{results.known}” to unfamiliar samples."
    return Section("Has the input changed?", sentences, {"stream": (chart, " ".join(sentences))}, note=note)
