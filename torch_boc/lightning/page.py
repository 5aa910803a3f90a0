"""The training so far as a page: one HTML file that loads nothing, made of what the callback has measured."""

import math
from html import escape
from pathlib import Path
from typing import Any

from ..core.schema import BINS_PER_DECADE, LOWEST_DECADE, BinCounts, BinSums, Counts, Tally
from ..data.atomic import replacing
from ..functional.summary import LABELLED_KEYS, summarize
from ..plots import BLUE, CYCLE, FEW_SAMPLES
from ..report.chart import PAGE_STYLE, SETS, Chart
from ..report.format import percent, short_percent
from .loader_metrics import LoopMetrics

KEYS = ("accuracy", "ece", "nll", "confidence", "gap", "forced_gap")
BARS = 5  # of the histogram, in a decade
SIZE: dict[str, Any] = {"width": 330, "height": 200}
CONDITION = "with 95 % probability, if inputs resemble the validation set"
PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
# By training step: the epoch, and for each loader, of which the first is in-distribution, its values by key.
History = dict[int, dict[str, Any]]


def write_page(loop: LoopMetrics, history: History, trainer: Any, module: Any, prefix: str) -> None:
    """Add the values of an epoch to `history`, write the page into the log folder, and send it to W&B and MLflow.

    In a distributed run, every process must call it.
    """
    for later in [step for step in history if step >= trainer.global_step]:  # of an earlier fit
        del history[later]
    history[trainer.global_step] = {"epoch": trainer.current_epoch + 1, "loaders": measure(loop)}
    path = Path(trainer.log_dir or trainer.default_root_dir).absolute() / f"{prefix}.html"  # read in all processes
    if not trainer.is_global_zero or trainer.fast_dev_run:
        return
    of = f" of {trainer.max_epochs}" if (trainer.max_epochs or 0) > 0 else ""
    about = f"torch_boc · {type(module).__name__} · {path.parent.name} · updated after each validation"
    with replacing(path) as temporary:
        temporary.write_text(render(loop, history, of, about, prefix), encoding="utf-8")
    for logger in trainer.loggers:
        kinds = {base.__name__ for base in type(logger).__mro__}
        if "WandbLogger" in kinds:
            logger.experiment.log_artifact(str(path), type="html")
        elif "MLFlowLogger" in kinds:
            logger.experiment.log_artifact(logger.run_id, str(path))


def measure(loop: LoopMetrics) -> dict[str, dict[str, float]]:
    """What is drawn by epoch of each loader that has values, by its name; NaN for a value that it has not."""
    measured: dict[str, dict[str, float]] = {}
    for index in loop.reliable:
        loader, name = loop.loaders[index], loop.names[index]
        unknown = LABELLED_KEYS if loader.ood or Counts(*loader.total.counts).bad_targets > 0 else ()
        values = {key: math.nan if key in unknown else x for key, x in summarize(loader.total).items() if key in KEYS}
        values |= {key: x for key, x in loader.detection.items() if key.endswith("_auroc") and 0 in loop.reliable}
        values |= {key: x for key, x in loop.logged.items() if key == "accepted" and index == 0}
        shown = "validation" if name in ("dataloader_idx_0", "combined") else name
        measured[shown] = {key: float(x) for key, x in values.items()}
    return measured


def render(loop: LoopMetrics, history: History, of: str, about: str, prefix: str) -> str:
    """The page, as HTML."""
    rows = list(history.values())
    xs, unit = [row["epoch"] for row in rows], "epoch"
    if len({*xs}) < len(xs):  # several validations in an epoch
        xs, unit = list(history), "step"
    names = list(dict.fromkeys(name for row in rows for name in row["loaders"]))[:SETS] or [""]
    colours, three = dict(zip(names, CYCLE, strict=False)), "{:.3f}".format

    def points(key: str) -> dict[str, list[tuple[float, float]]]:
        lines = {name: [row["loaders"].get(name, {}).get(key, math.nan) for row in rows] for name in names}
        return {name: list(zip(xs, y, strict=True)) for name, y in lines.items() if any(map(math.isfinite, y))}

    def best(key: str, pick: Any, form: Any) -> tuple[float, str]:
        line = next(iter(points(key).values()))
        x, y = pick((point for point in line if math.isfinite(point[1])), key=lambda point: point[1])
        return x, f"best: {form(y)} in {unit} {x:,}"

    def course(title: str, note: str, key: str, form: Any, pick: Any = None, dotted: str = "") -> str:
        lines, others = points(key), points(dotted)
        if not lines:
            return ""
        values, side = [y for line in lines.values() for _, y in line if y == y], 0.0 if len(xs) > 1 else 0.5
        room = max((max(values) - min(values)) / 12, 0.02)
        ends = (max(0, min(values) - room), min(1, max(values) + room)) if pick is max else (0, max(values) + room)
        options = {**SIZE, "percent": "y" if form is percent else "", "xtick": "{:,.0f}".format}
        chart = Chart(unit, None, (xs[0] - side, xs[-1] + side), ends, **options)
        if pick is not None and len(xs) > 1 and (len(lines) == 1 or names[0] in lines):
            x, words = best(key, pick, form)
            chart.rule((x, x), ends)
            note += f" · {words}"
        for name, line in lines.items():
            chart.line(xs, [y for _, y in line], colours[name], name if len(lines) > 1 else "")
            chart.line(xs, [y for _, y in others.get(name, [])], colours[name], style='stroke-dasharray="2 4"')
            seen = [(x, y) for x, y in line if y == y]
            for x, y in [*seen[:: len(seen) // 100 + 1], seen[-1]]:
                colour = colours[name] if x == seen[-1][0] else "transparent"
                chart.dot(x, y, colour, f"{name}: {form(y)} in {unit} {x:,}")
        return card(title, note, chart.svg(f"{title} by {unit}: {note}."))

    last = dict.fromkeys((*KEYS, "accepted"), math.nan) | rows[-1]["loaders"].get(names[0], {})
    accuracy, ece, accepted = (percent(last[key]) for key in ("accuracy", "ece", "accepted"))
    score, level = loop.config.separation.scores[0], short_percent(loop.config.max_error or 0)
    headline = [f"mean coherence gap {three(last['gap'])}"]
    tiles = [(three(last["gap"]), "mean coherence gap", f"{three(last['forced_gap'])} forced by confidence")]
    if math.isfinite(last["accuracy"]):
        side = "over" if last["confidence"] > last["accuracy"] else "under"
        headline = [f"{accuracy} accuracy", f"ECE {ece}"]
        tiles = [
            (accuracy, "accuracy", best("accuracy", max, percent)[1]),
            (ece, "ECE", f"{side}confident: mean confidence {percent(last['confidence'])}"),
            (three(last["nll"]), "negative log-likelihood", best("nll", min, three)[1]),
        ]
    if math.isfinite(last["accepted"]):
        headline.append(f"{accepted} could be automated")
        tiles[2:] = [(accepted, f"coverage at error ≤ {level}", CONDITION)]
    areas = sorted((line[-1][1], name) for name, line in points(f"{score}_auroc").items() if line[-1][1] == line[-1][1])
    if areas:
        rank = f", the lowest of {len(areas)}" if len(areas) > 1 else ""
        tiles.append((f"{areas[0][0]:.2f}", f"OOD AUROC of {score}", f"against {areas[0][1]}{rank}"))
    totals = dict(zip(rows[-1]["loaders"], (loop.loaders[index].total for index in loop.reliable), strict=True))
    cards = [
        course("Accuracy", "higher is better", "accuracy", percent, max),
        course("Calibration error (ECE)", "lower is better", "ece", percent, min),
        course(f"Coverage at error ≤ {level}", CONDITION, "accepted", percent, max),
        course("Negative log-likelihood", "lower is better", "nll", three, min),
        course("Coherence gap", "dotted: forced by confidence", "gap", three, dotted="forced_gap"),
        course(f"OOD detection by {score}", f"AUROC, {names[0]} against OOD", f"{score}_auroc", "{:.2f}".format, max),
        reliability(totals[names[0]]) if names[0] in totals else "",
        histogram({name: total for name, total in totals.items() if name in colours}, colours),
    ]
    calibrated = {"conformal_test": loop.test, "acceptance": loop.acceptance}
    arguments = "".join(f", {name}=callback.{name}" for name, part in calibrated.items() if part is not None)
    shown = "".join(f"<p><b>{spaced(x)}</b>{spaced(what)}<small>{spaced(sub)}</small></p>" for x, what, sub in tiles)
    title = spaced(f"Epoch {rows[-1]['epoch']}{of}: {', '.join(headline)}")
    texts = {"title": title, "about": spaced(about), "prefix": escape(prefix), "arguments": arguments}
    return PAGE.format(style=PAGE_STYLE, tiles=shown, cards="".join(cards), **texts)


def reliability(total: Tally) -> str:
    """Accuracy by confidence in the last epoch."""
    counts, sums = BinCounts(*total.bin_counts.tolist()), BinSums(*total.bin_sums.tolist())
    bins = zip(sums.labelled_confidence, counts.correct, counts.labelled, strict=True)
    points = [(score / n, correct / n, n) for score, correct, n in bins if n >= FEW_SAMPLES]
    if not points:
        return ""
    ends = math.floor(10 * min(0.9, *map(min, points))) / 10, 1.0
    chart = Chart("confidence", None, ends, ends, **SIZE)
    chart.rule(ends, ends)
    chart.line([x for x, _, _ in points], [y for _, y, _ in points], BLUE)
    for x, y, n in points:
        chart.dot(x, y, BLUE, f"confidence {percent(x)}, accuracy {percent(y)}, {n:,} samples")
    note = f"accuracy by confidence, last epoch, in bins of {FEW_SAMPLES} samples or more"
    return card("Reliability", note, chart.svg(f"Reliability diagram: {note}."))


def histogram(totals: dict[str, Tally], colours: dict[str, str]) -> str:
    """The distribution of the gap in the last epoch."""
    counts = {name: total.gap_histogram for name, total in totals.items()}
    shares = {name: (x[1:].view(-1, BINS_PER_DECADE // BARS).sum(-1) / x.sum()).tolist() for name, x in counts.items()}
    decades = [bar // BARS for line in shares.values() for bar, share in enumerate(line) if share > 0]
    if not decades:
        return ""
    first, end, highest = min(decades), max(decades) + 1, max(map(max, shares.values()))
    ends = (LOWEST_DECADE + first, LOWEST_DECADE + end), (0, 1.1 * highest)
    chart = Chart("coherence gap Δ", None, *ends, percent="y", xtick="1e{:.0f}".format, **SIZE)
    xs = [LOWEST_DECADE + (bar + side) / BARS for bar in range(first * BARS, end * BARS) for side in (0, 1)]
    for name, line in shares.items():
        ys = [share for share in line[first * BARS : end * BARS] for _ in range(2)]
        chart.line(xs, ys, colours[name], name if len(shares) > 1 else "")
    note = "share of samples, last epoch, logarithmic axis"
    return card("Distribution of the gap", note, chart.svg(f"Histogram of the gap: {note}."))


def card(title: str, note: str, drawn: str) -> str:
    return f"<section><h2>{spaced(title)}</h2><small>{spaced(note)}</small><figure>{drawn}</figure></section>"


def spaced(text: str) -> str:
    """Text in HTML, without line breaks before a percent sign."""
    return escape(text).replace(" %", "&nbsp;%")
