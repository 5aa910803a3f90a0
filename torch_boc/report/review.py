"""Selective prediction, review and drift: what can be accepted, what the conformal test flags, and when it alarms."""

import math
from typing import Any

from ..plots import BLUE, CYCLE, ORANGE
from .chart import SETS, Chart
from .elements import Cell, Section, Table, cells, make_table
from .format import (
    FEW,
    PERCENT,
    condition_text,
    counted,
    join_words,
    list_or_range,
    p_text,
    percent,
    range_text,
    score_label,
    short_percent,
    value_text,
)
from .results import Results, where

PAPER = "paper’s test"


def reviewed(results: Results, share: float) -> tuple[float, str]:
    """The accuracy of the remainder if a share of the test set is reviewed, and what is detected, in words."""
    rows, parts = where(results.review, share=share), []
    for _, row in rows.dropna(subset="detected").head(1 + FEW).iterrows():
        parts.append(f"{percent(row['detected'])} of " + ("the errors" if row["kind"] == "id" else f"“{row['set']}”"))
    return float(rows["accuracy"].iloc[0]), join_words(parts)


def review_section(results: Results) -> Section:
    """Risk against coverage, and what the conformal test flags."""
    share, sentences, more = results.settings["review_share"], [], dict[str, Any]()
    note = "Risk-coverage curve: the error among the most confident predictions, by the share that is accepted. "
    if len(results.acceptance):
        sentences.append(accepted_sentence(results))
        more["Coverage at 1, 2 and 5 % error"] = [acceptance_table(results)]
        dot = results.acceptance.iloc[0]["accepted"] > 0 and not violated(results)
        note += "The dot is the accepted share with the guarantee." if dot else ""
    if share is not None:
        accuracy, detected = reviewed(results, share)
        rest = f"leaves an accuracy of {percent(accuracy)} and " if accuracy == accuracy else ""
        sentences.append(f"Reviewing the least confident {short_percent(share)} {rest}finds {detected}.")
    if len(results.screening):
        sentences += flagged_sentences(results)
        levels = results.screening["alpha"].unique()
        more["Flagged at 5 % and 1 % FPR, by score"] = [flagged_table(results, alpha) for alpha in levels]
    return Section("Selective prediction and review", sentences, review_chart(results), more=more, note=note)


def review_chart(results: Results) -> dict[str, tuple[Chart, str]]:
    """Risk against coverage, and what is accepted at the first error."""
    table = results.review.dropna(subset="accuracy")
    if not len(table):
        return {}
    coverage, risk = 1 - table["share"], 1 - table["accuracy"]
    most = max(float(risk.max()), 0.02) * 1.1
    chart = Chart("coverage: accepted share", "risk: error among accepted", (0, 1), (0, most), height=280)
    chart.line(coverage, risk, BLUE, results.test_set)
    alt = f"Risk against coverage: the error is {percent(float(risk.iloc[0]))} if all predictions are accepted"
    for _, row in results.acceptance[:1].query("accepted > 0").iterrows():
        valid = ", not valid here" if violated(results) else ""
        label = f"accepted at {short_percent(row['error'])} error: {percent(row['accepted'])}{valid}"
        alt += f"; {label}"
        chart.rule((0, 1), (row["error"], row["error"]))
        chart.name(label, f'<circle cx="8" cy="-4" r="4" fill="{ORANGE}"/>')
        chart.dot(row["accepted"], row["wrong"], ORANGE, label, (row["wrong_low"], row["wrong_high"]))
    chart.rule((0, 0), (0, most), marks='id="cut"')
    return {"review": (chart, f"{alt}.")}


def held_out_name(results: Results) -> str:
    """The split that guarantees are calibrated on; "" for a half of the test set."""
    return str(next(iter([*results.screening["held_out"][:1], *results.acceptance["held_out"][:1]]), ""))


def unlike(results: Results) -> str:
    """That the test set is not like the held-out samples, in words; "" if nothing refutes that it is."""
    held_out = held_out_name(results)
    if not held_out or not results.settings.get("violations"):
        return ""
    return f"“{results.test_set}” does not look like the held-out samples “{held_out}”"


def violated(results: Results) -> str:
    """Why the guarantee of acceptance is not valid on the test set, in words; "" if nothing refutes it.

    Two random halves of one set are exchangeable, and still it may fail with the probability delta.
    """
    failed = "it fails for up to 5 % of held-out sets" if results.settings.get("violations") else ""
    return unlike(results) or failed


def condition(results: Results) -> str:
    """The condition of every guarantee."""
    name = held_out_name(results) or results.test_set
    return condition_text(repeated=name in results.settings.get("repeated", {}))


def guarantee(results: Results, row: Any) -> str:
    """What is guaranteed of accepted predictions, with its probability and its condition."""
    sure = short_percent(row["probability"])
    return f"error ≤ {short_percent(row['error'])} with {sure} probability, {condition(results)}"


def refusal(row: Any) -> str:
    """Why nothing is accepted."""
    if row["held_out_samples"] < row["needed"]:
        return f"{row['needed']:,.0f} held-out samples needed, got {row['held_out_samples']:,.0f}"
    return f"too many confident errors among the {counted(row['held_out_samples'], 'held-out sample')}"


def accepted_sentence(results: Results) -> str:
    """What can be accepted at the first error."""
    row, why = results.acceptance.iloc[0], violated(results)
    if not row["accepted"]:
        return f"No prediction can be accepted at {short_percent(row['error'])} error: {refusal(row)}."
    share, wrong = value_text(row, "accepted", **PERCENT), value_text(row, "wrong", **PERCENT)
    if why:
        at = f"asked for {short_percent(row['error'])} error, it accepts {share}, of which {wrong} are wrong"
        return f"The guarantee of accepted predictions is not valid here, because {why}: {at}."
    return f"{share} of predictions can be accepted: {guarantee(results, row)}. Here {wrong} of them are wrong."


def acceptance_table(results: Results) -> Table:
    """What can be accepted at each error."""
    table, odds = results.acceptance, results.acceptance["threshold"]
    table = table.assign(least=1 / (1 + (-odds[odds.abs() < math.inf]).map(math.exp)))
    row = table.iloc[0]
    return make_table(
        f"Error among accepted predictions, guaranteed with {short_percent(row['probability'])} probability, "
        f"{condition(results)}{' (not valid here)' if violated(results) else ''}. Calibrated on "
        f"{held_out_text(results, row)}",
        {
            "error at most": list(map(short_percent, table["error"])),
            "accepted": cells(table, "accepted", **PERCENT),
            "wrong on the test set": cells(table, "wrong", **PERCENT),
            "confidence from": cells(table, "least", 3),
            "held-out samples needed": [f"{needed:,.0f}" for needed in table["needed"]],
        },
    )


def held_out_text(results: Results, row: Any) -> str:
    """The held-out samples of a row, in words."""
    name = f"“{row['held_out']}”" if row["held_out"] else f"a random half of “{results.test_set}”"
    return f"{counted(row['held_out_samples'], 'sample')}, {name}"


def flagged(results: Results) -> Any:
    """What the first conformal test flags at the first level: the rows of the test set and of the first OOD set."""
    table = where(results.screening, test="conformal", alpha=results.settings["level"])
    return table.dropna(subset="flagged").drop_duplicates("kind")


def flagged_sentences(results: Results) -> list[str]:
    """What the conformal test of the first score flags at the first level, and what refutes its condition."""
    table = where(results.screening, test="conformal")
    if not len(table):
        return []
    score, level = table.iloc[0]["score"], results.settings["level"]
    rows = where(table, score=score, alpha=level)
    test_set, others = rows.iloc[0], rows.iloc[1:]
    if math.isnan(test_set["flagged"]):
        needed = math.ceil(1 / level - 1e-9) - 1
        got = f"{short_percent(level)} FPR, got {test_set['held_out_samples']:,}"
        return [f"{needed} held-out samples are needed to flag at {got}."]
    rates, missed, blind = [], [], []
    for _, row in others.iterrows():
        name = f"“{row['set']}”"
        rates.append(f"{value_text(row, 'flagged', **PERCENT)} of {name}")
        missed += [f"{percent(1 - row['flagged'])} of {name}"] if row["flagged_high"] < 0.5 else []
        # The interval does not know how the held-out samples vary, and with them the threshold.
        blind += [name] if row["chance"] * len(others) > level else []
    shares = [f"{value_text(test_set, 'flagged', **PERCENT)} of “{test_set['set']}”"]
    shares += rates if len(rates) <= FEW else [list_or_range(rates, others["flagged"], percent)]
    pass_ = "passes" if len(missed) == 1 else "pass"
    but = f"; {list_or_range(missed, 1 - others['flagged'], percent)} {pass_} undetected" if missed else ""
    verb = "is" if len(blind) == 1 else "are"
    but += f"; {join_words(blind)} {verb} not shown to be flagged more often than ID samples" if blind else ""
    lead = f"At a nominal {short_percent(level)} FPR the conformal test of {score_label(score)}"
    sentences = [f"{lead} flags {join_words(shares)}{but}."]
    if test_set["flagged_low"] > level and not unlike(results):
        held = counted(test_set["held_out_samples"], "held-out sample")
        ends = f"{percent(test_set['rate_low'])} to {percent(test_set['rate_high'])}"
        sentences.append(f"With {held} the FPR is {ends} in 95 % of draws, {condition(results)}.")
    if "flagged" in results.settings.get("violations", ()):
        table = where(table, kind="id").dropna(subset="chance")
        row = table.loc[table["chance"].idxmin()]
        test = f"at {short_percent(row['alpha'])} the conformal test of {score_label(row['score'])}"
        rate = f"{value_text(row, 'flagged', **PERCENT)} of “{row['set']}”"
        chance = f"more than chance explains ({p_text(row['chance'] * len(table))})"
        sentences.append(f"The FPR is not valid here, because {unlike(results)}: {test} flags {rate}, {chance}.")
    return sentences


def flagged_table(results: Results, alpha: float) -> Table:
    """The share of each set that each test flags at one level; the paper's test is the last."""
    table, columns = where(results.screening, alpha=alpha), {}
    for score, rows in table.groupby("score", sort=False):
        columns["set"] = [Cell(name, f"n = {n:,}") for name, n in zip(rows["set"], rows["samples"], strict=True)]
        columns[score_label(score) if score else PAPER] = cells(rows, "flagged", **PERCENT)
    columns[PAPER] = columns.pop(PAPER)
    return make_table(
        f"Share of samples that the conformal test of each score flags at {short_percent(alpha)} FPR, with 95 % "
        f"intervals. It is calibrated on {held_out_text(results, table.iloc[0])}. The paper’s test guarantees no FPR",
        columns,
    )


def delay_text(row: Any) -> str:
    """The median detection delay of a row of `delays`, in words."""
    if math.isfinite(row["delay"]):
        return counted(int(row["delay"]), "sample")
    return "no alarm" if row["early"] < row["streams"] else "not valid"


def drift_section(results: Results) -> Section | None:
    """When a drift monitor raises its alarm; one sentence for many OOD sets."""
    streams = results.stream.groupby("ood", sort=False)
    if not len(streams):
        return None
    alpha = float(results.stream["alpha"].iloc[0])
    change, limit = int((next(iter(streams))[1]["kind"] == "id").sum()), -math.log10(alpha)
    evidence = results.stream["evidence"] / math.log(10)
    drawn = results.stream[evidence.groupby(results.stream["ood"]).cummax() <= 2 * limit]  # what follows adds nothing
    ends = (0, int(drawn["sample"].max())), (min(-1.0, float(evidence.min())), 2 * limit)
    chart = Chart("samples", "evidence of drift (log10)", *ends, percent="", height=240)
    chart.rule(ends[0], (limit, limit), "alarm")
    chart.rule((change, change), ends[1])
    for (name, rows), colour in zip(streams, CYCLE[:SETS], strict=False):
        places = where(drawn, ood=name).index
        chart.line(rows["sample"].loc[places], evidence.loc[places], colour, name)
        for at in rows["sample"][evidence.loc[rows.index] >= limit][:1]:
            chart.dot(at, limit, colour, f"{name}: alarm at sample {at:,}")
    sentences = delay_sentences(results, change)
    stream = f"a stream of “{results.test_set}” that shifts to OOD samples"
    note = f"Evidence (log10 wealth) of a drift monitor over {stream}."
    return Section("Drift", sentences, {"stream": (chart, " ".join(sentences))}, note=note)


def delay_sentences(results: Results, change: int) -> list[str]:
    """The detection delays, and the condition of the monitor's guarantee."""
    table, sentences = results.delays, []
    alpha = short_percent(table["alpha"].max())
    guaranteed = f"The probability of ever raising a false alarm is at most {alpha}, {condition(results)}."
    for _, row in table.iterrows():
        more = f" (90 % within {row['delay_most']:,.0f})" if math.isfinite(row["delay_most"]) else ""
        lead = f"Median detection delay for “{row['ood']}”: {delay_text(row)}{more}"
        if not math.isfinite(row["delay"]):
            lead = f"“{row['ood']}” is not detected"
        if row["missed"]:
            lead += f"; no alarm in {row['missed']:,} of {row['streams']:,} streams"
        if row["early"] and not unlike(results):
            early = counted(row["early"], "false alarm")
            lead += f"; {early} in {row['streams']:,} streams of {change:,} ID samples first"
        sentences.append(f"{lead}.")
    if len(table) > FEW:
        finite = [delay for delay in table["delay"] if math.isfinite(delay)]
        delays = f": {range_text(finite, '{:,.0f}'.format)} samples" if finite else ""
        sentences = [f"Median detection delay on {len(finite)} of {len(table)} OOD sets{delays}."]
    if unlike(results):
        row, early = table.loc[table["early"].idxmax()], ""
        if "drift" in results.settings["violations"]:
            share = f"{row['early']:,} of {row['streams']:,} streams"
            early = f": the monitor alarms before the first OOD sample in {share}"
        guaranteed = f"The bound on false alarms is not valid here, because {unlike(results)}{early}."
    return [*sentences, guaranteed]
