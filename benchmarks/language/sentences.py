"""What the numbers say, in sentences that follow from them: whoever runs it again gets the sentences of that run."""

from typing import Any

import pandas as pd

from benchmarks.language.analysis import CONTRASTS, NATURAL
from benchmarks.language.figures import SIGNED, of
from benchmarks.language.texts import SETS
from torch_boc.report.format import join_words, number

OTHERS = [other for _, other in CONTRASTS]


def answers(table: pd.DataFrame, model: str, models: list[str]) -> list[str]:
    """The answers to the questions of the page."""
    sets = {name: rows for name in SETS if (rows := of(table, model, name))}
    natural = {name: rows for name, rows in sets.items() if name not in OTHERS}
    return [
        _calibrated(natural),
        _forced(table, models),
        *(_beyond(natural, score) for score in ("lost_coins", "concentration")),
        *_told(table, model),
    ]


def _calibrated(sets: dict[str, dict[str, Any]]) -> str:
    """Is the confidence in the next token calibrated?"""
    parts, excess = [], {}
    for name, rows in sets.items():
        excess[name] = rows["confidence"].value - rows["accuracy"].value
        more = number(excess[name], 3, sign=True)
        parts.append(f"{name} {_interval(rows['ece'])} (mean confidence minus accuracy {more})")
    sure = [name for name, value in excess.items() if value > 0]
    whom = "every set" if len(sure) == len(sets) else join_words(sure) if sure else "no set"
    return f"**Calibration.** The model is overconfident on {whom}. ECE: {join_words(parts)}."


def _forced(table: pd.DataFrame, models: list[str]) -> str:
    """Does the forced share stay above 99 %?"""
    rows = table[(table["what"] == "forced_share") & table["model"].isin(models)]
    least = rows.loc[rows["low"].idxmin()]
    holds = "Yes" if least["low"] > 0.99 else "No"
    return (
        f"**Is more than 99 % of the gap forced?** {holds}: at least {100 * least['low']:.3f} % of the mean gap on "
        f"every set (the lower end of the interval on {least['set']}, {least['model']}). The gap is 1 − p̂ again."
    )


def _beyond(sets: dict[str, dict[str, Any]], score: str) -> str:
    """Does a score tell right from wrong next tokens beyond confidence?"""
    shown = {name: max(x[f"over_{score}"].low, x[f"under_{score}"].low) > 0 for name, x in sets.items()}
    away = [name for name, differs in shown.items() if differs]
    values = join_words([f"{name} {_interval(x[f'within_{score}'])}" for name, x in sets.items()])
    of_confidence = join_words([f"{name} {number(x['within_confidence'].value, 3)}" for name, x in sets.items()])
    verdict = "Not shown on any set" if not away else f"Shown, but little, on {join_words(away)}"
    if away and len(away) < len(sets):
        verdict += "; not shown on the others"
    overall = [f"{name} {number(x[f'auroc_{score}'].value, 3)}" for name, x in sets.items()]
    plain = [f"{name} {number(x['auroc_confidence'].value, 3)}" for name, x in sets.items()]
    return (
        f"**Does {SIGNED[score]} separate correct from wrong next tokens beyond confidence?** {verdict} (by the paired "
        f"difference from confidence, in strata). AUROC at equal confidence: {values}; confidence itself, which still "
        f"varies a little within the strata, has {of_confidence}. Over all pairs: {join_words(overall)}, where "
        f"confidence has {join_words(plain)}."
    )


def _told(table: pd.DataFrame, model: str) -> list[str]:
    """What tells natural from other text?"""
    lines = []
    for one, other in CONTRASTS:
        estimates = of(table, model, f"{one} / {other}")
        if not estimates:
            continue
        best = max(NATURAL, key=lambda name: abs(estimates[f"document_{name}"].value - 0.5))
        rows = [f"{SIGNED[name]} {_interval(estimates[f'document_{name}'])}" for name in NATURAL]
        lines.append(
            f"**{one} against {other}**: {SIGNED[best]} separates the means of documents best. AUROC, below "
            f"0.5 where {other} scores higher: {join_words(rows)}. By single tokens the log-probability has "
            f"{_interval(estimates['token_log_probability'])}."
        )
    return lines


def _interval(row: Any) -> str:
    return f"{number(row.value, 3)} [{number(row.low, 3)}, {number(row.high, 3)}]"
