"""A page to explore a report: curves with values under the pointer, a slider for the threshold, and single samples."""

from typing import Any

from markupsafe import Markup

from .._optional import require
from .explore_data import explore_data
from .measured import TITLE, headline
from .rendering import template
from .results import Results
from .symbols import Introductions
from .topics import captions
from .words import axis_name, distinct_names, short_percent

# The shares of false alarms that a button leads to.
JUMPS = (0.01, 0.05, 0.1)
THRESHOLD, ROC, RELIABILITY = "Where to draw the line", "ROC curves", "Reliability"
COHERENCE, LIST = "Δ against confidence, sample by sample", "The most suspicious samples"
NEEDS = {
    THRESHOLD: "the shares below thresholds",
    ROC: "an OOD set",
    RELIABILITY: "targets",
    COHERENCE: "single samples",
    LIST: "single samples",
}


def explore_page(results: Results) -> str:
    """The whole page, with plotly's script in it: it asks for nothing else.

    Raises:
        ImportError: if plotly is not installed.
    """
    script = require("plotly", "offline", purpose="the page to explore needs").offline.get_plotlyjs()
    data = explore_data(results)
    shown = _shown(data)
    texts = [headline(results), *shown, *(x["title"] for x in data["alarms"].values())]
    return template("explore.html.jinja").render(
        title=f"{TITLE}: explore",
        subtitle=str(results.settings.get("title", "")),
        headline=headline(results),
        shown=shown,
        missing=[(name, NEEDS[name]) for name in NEEDS if name not in shown],
        names={"threshold": THRESHOLD, "roc": ROC, "reliability": RELIABILITY, "coherence": COHERENCE, "list": LIST},
        scores=[(name, axis_name(name)) for name in distinct_names(results.alarms["score"])],
        sets=[(name, name) for name in data["roc"]],
        alts={x.name: x.alt for x in captions(results, _drawn(shown))},
        jumps=[(level, short_percent(level)) for level in JUMPS],
        counts=_counts(results),
        data=data,
        plotly=Markup(script),
        glossary=Introductions().of([*texts, "p̂ q̄ Δ ρ AUROC"]),
    )


def _shown(data: dict[str, Any]) -> list[str]:
    """The titles of the panels that have something to show."""
    parts = {
        THRESHOLD: data["alarms"],
        ROC: data["roc"],
        RELIABILITY: data["reliability"],
        COHERENCE: data["samples"],
        LIST: data["samples"],
    }
    return [name for name, part in parts.items() if part]


def _drawn(shown: list[str]) -> list[str]:
    """The figures of the report whose numbers describe the figures of this page."""
    return [name for name, panel in (("roc", ROC), ("reliability", RELIABILITY)) if panel in shown]


def _counts(results: Results) -> dict[str, tuple[int, int, int]]:
    """For each set: how many samples the page has, how many of these are the most suspicious, and its size."""
    table, sizes = results.samples, results.settings["samples"]
    found = {}
    for name in distinct_names(table["set"]):
        rows = table[table["set"] == name]
        found[name] = len(rows), int(rows["suspicious"].sum()), int(sizes.get(name, len(rows)))
    return found
