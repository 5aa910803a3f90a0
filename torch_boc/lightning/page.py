"""The training so far as a page: one HTML file that loads nothing, made of what the callback has measured."""

import math
from html import escape
from pathlib import Path
from typing import Any

from ..core.schema import BINS_PER_DECADE, LOWEST_DECADE, BinCounts, BinSums, Counts, Tally
from ..data.atomic import replacing
from ..functional.summary import LABELLED_KEYS, summarize
from ..plots import FEW_SAMPLES
from ..report.chart import BLUE, COLOURS, PAGE_STYLE, SETS, Chart
from ..report.words import percent, short_percent
from .loader_metrics import LoopMetrics

KEYS = ("accuracy", "ece", "nll", "confidence", "gap", "forced_gap")
BARS = 5  # of the histogram, in a decade
SIZE: dict[str, Any] = {"width": 330, "height": 200}
EXPONENT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
CONDITION = "with 95 % probability, if inputs resemble the validation set"
PAGE = """<!DOCTYPE html>
<html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>
<title>{title}</title><style>{style}
.cards {{ grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }}
.cards h2 {{ font-size: 1.1rem; margin: 0; }} .cards small {{ display: block; line-height: 1.4; }}
.cards figure {{ margin: .7rem 0 0; }} .do p {{ max-width: none; }}
</style></head><body><main><header><p class='headline'>{about}</p><h1>{title}</h1></header>
<div class='tiles'>{tiles}</div><div class='cards'>{cards}</div><div class='do'>
<p>Monitor <code>val/{prefix}/nll</code>, never the gap, which follows confidence. To deploy:
<code>torch_boc.BoCClassifier(model, conformal_test=callback.conformal_test, acceptance=callback.acceptance)</code>.
If the validation set chose the checkpoint, calibrate them with other held-out samples.</p></div></main></body></html>
"""
# By training step: the epoch, and for each loader, of which the first is in-distribution, its values by key.
History = dict[int, dict[str, Any]]
Lines = dict[str, list[float]]


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
    found: dict[str, dict[str, float]] = {}
    for place in loop.reliable:
        loader, name = loop.loaders[place], loop.names[place]
        unknown = LABELLED_KEYS if loader.ood or Counts(*loader.total.counts).bad_targets > 0 else ()
        values = {key: math.nan if key in unknown else x for key, x in summarize(loader.total).items() if key in KEYS}
        values |= {key: x for key, x in loader.detection.items() if key.endswith("_auroc") and 0 in loop.reliable}
        values |= {key: x for key, x in loop.logged.items() if key == "accepted" and place == 0}
        name = "validation" if name in ("dataloader_idx_0", "combined") else name
        found[name] = {key: float(x) for key, x in values.items()}
    return found


def render(loop: LoopMetrics, history: History, of: str, about: str, prefix: str) -> str:
    """The page, as HTML."""
    rows = list(history.values())
    xs, unit = [row["epoch"] for row in rows], "epoch"
    if len({*xs}) < len(xs):  # several validations in an epoch
        xs, unit = list(history), "step"
    names = list(dict.fromkeys(name for row in rows for name in row["loaders"]))[:SETS] or [""]
    colours, three = dict(zip(names, COLOURS, strict=False)), "{:.3f}".format

    def lines(key: str) -> Lines:
        found = {name: [row["loaders"].get(name, {}).get(key, math.nan) for row in rows] for name in names}
        return {name: line for name, line in found.items() if any(map(math.isfinite, line))}

    def best(line: list[float], pick: Any, form: Any) -> tuple[float, str]:
        x, y = pick(
            (point for point in zip(xs, line, strict=True) if math.isfinite(point[1])), key=lambda point: point[1]
        )
        return x, f"best: {form(y)} in {unit} {x:,}"

    def course(title: str, note: str, key: str, form: Any, pick: Any = None, dotted: str = "") -> str:
        found, other = lines(key), lines(dotted)
        if not found:
            return ""
        values, side = [y for line in found.values() for y in line if math.isfinite(y)], 0.0 if len(xs) > 1 else 0.5
        room = max((max(values) - min(values)) / 12, 0.02)
        ends = (max(0, min(values) - room), min(1, max(values) + room)) if pick is max else (0, max(values) + room)
        how = {**SIZE, "percent": "y" if form is percent else "", "xtick": "{:,.0f}".format}
        chart = Chart(unit, None, (xs[0] - side, xs[-1] + side), ends, **how)
        if pick is not None and len(xs) > 1 and (len(found) == 1 or names[0] in found):
            x, words = best(next(iter(found.values())), pick, form)
            chart.rule((x, x), ends)
            note += f" · {words}"
        for name, line in found.items():
            chart.line(xs, line, colours[name], name if len(found) > 1 else "")
            chart.line(xs, other.get(name, []), colours[name], style='stroke-dasharray="2 4"')
            points = [(x, y, f"{name}: {form(y)} in {unit} {x:,}") for x, y in zip(xs, line, strict=True) if y == y]
            for point in points[:: len(points) // 100 + 1]:  # what the pointer finds
                chart.dot(*point[:2], "transparent", point[2])
            chart.dot(*points[-1][:2], colours[name], points[-1][2])
        return card(title, note, chart.svg(f"{title} by {unit}: {note}."))

    last = dict.fromkeys((*KEYS, "accepted"), math.nan) | rows[-1]["loaders"].get(names[0], {})
    accuracy, ece, accepted = (percent(last[key]) for key in ("accuracy", "ece", "accepted"))
    score, level = loop.config.separation.scores[0], short_percent(loop.config.max_error or 0)
    said = [f"mean coherence gap {three(last['gap'])}"]
    tiles = [(three(last["gap"]), "mean coherence gap", f"{three(last['forced_gap'])} forced by confidence")]
    if math.isfinite(last["accuracy"]):
        side = "over" if last["confidence"] > last["accuracy"] else "under"
        said = [f"{accuracy} accuracy", f"ECE {ece}"]
        tiles = [
            (accuracy, "accuracy", best(lines("accuracy")[names[0]], max, percent)[1]),
            (ece, "ECE", f"{side}confident: mean confidence {percent(last['confidence'])}"),
            (three(last["nll"]), "negative log-likelihood", best(lines("nll")[names[0]], min, three)[1]),
        ]
    if math.isfinite(last["accepted"]):
        said.append(f"{accepted} could be automated")
        tiles[2:] = [(accepted, f"coverage at error ≤ {level}", CONDITION)]
    if areas := sorted((line[-1], name) for name, line in lines(f"{score}_auroc").items() if line[-1] == line[-1]):
        lowest = f", the lowest of {len(areas)}" if len(areas) > 1 else ""
        tiles.append((f"{areas[0][0]:.2f}", f"OOD AUROC of {score}", f"against {areas[0][1]}{lowest}"))
    totals = dict(zip(rows[-1]["loaders"], (loop.loaders[place].total for place in loop.reliable), strict=True))
    cards = [
        course("Accuracy", "higher is better", "accuracy", percent, max),
        course("Calibration error (ECE)", "lower is better", "ece", percent, min),
        course(f"Coverage at error ≤ {level}", CONDITION, "accepted", percent, max),
        course("Negative log-likelihood", "lower is better", "nll", three, min),
        course("Coherence gap", "dotted: forced by confidence", "gap", three, dotted="forced_gap"),
        course(f"OOD detection by {score}", f"AUROC, {names[0]} against OOD", f"{score}_auroc", "{:.2f}".format, max),
        reliability(totals[names[0]]) if names[0] in totals else "",
        histogram(totals, colours),
    ]
    title = spaced(f"Epoch {rows[-1]['epoch']}{of}: {', '.join(said)}")
    shown = "".join(f"<p><b>{spaced(x)}</b>{spaced(what)}<small>{spaced(how)}</small></p>" for x, what, how in tiles)
    found = {"title": title, "about": spaced(about), "prefix": escape(prefix), "tiles": shown, "cards": "".join(cards)}
    return PAGE.format(style=PAGE_STYLE, **found)


def reliability(total: Tally) -> str:
    """Accuracy by confidence in the last epoch."""
    counts, sums = BinCounts(*total.bin_counts.tolist()), BinSums(*total.bin_sums.tolist())
    bins = zip(sums.labelled_confidence, counts.correct, counts.labelled, strict=True)
    points = [(score / n, right / n, n) for score, right, n in bins if n >= FEW_SAMPLES]
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
    shares: Lines = {}
    for name, total in ((name, totals[name]) for name in totals if name in colours):
        bars = total.gap_histogram[1:].view(-1, BINS_PER_DECADE // BARS).sum(-1)
        shares[name] = (bars / total.gap_histogram.sum()).tolist()
    some = [place // BARS for line in shares.values() for place, share in enumerate(line) if share > 0]
    if not some:
        return ""
    first, end, highest = min(some), max(some) + 1, max(map(max, shares.values()))
    how = {**SIZE, "percent": "y", "xtick": lambda x: "10" + f"{x:.0f}".translate(EXPONENT)}
    chart = Chart("coherence gap Δ", None, (LOWEST_DECADE + first, LOWEST_DECADE + end), (0, 1.1 * highest), **how)
    xs = [LOWEST_DECADE + (place + side) / BARS for place in range(first * BARS, end * BARS) for side in (0, 1)]
    for name, line in shares.items():
        ys = [share for share in line[first * BARS : end * BARS] for _ in range(2)]
        chart.line(xs, ys, colours[name], name if len(shares) > 1 else "")
    note = "share of samples, last epoch, logarithmic axis"
    return card("Distribution of the gap", note, chart.svg(f"Histogram of the coherence gap: {note}."))


def card(title: str, note: str, drawn: str) -> str:
    return f"<section><h2>{spaced(title)}</h2><small>{spaced(note)}</small><figure>{drawn}</figure></section>"


def spaced(text: str) -> str:
    """Text in HTML, without line breaks before a percent sign."""
    return escape(text).replace(" %", "&nbsp;%")
