"""The evidence of a drift monitor over a stream that turns from the test set to an OOD set, and the alarm."""

import math
from collections.abc import Iterable
from typing import Any

from ..plots import CYCLE, GREY
from .axes import SETS, figure_text, finish, panels
from .results import Results
from .words import FEW, distinct_names, quoted, short_percent


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


def describe_stream(results: Results) -> str:
    """When the alarm comes in each stream, for people who cannot see the figure."""
    parts = [f"in one that {_course(results, name, rows)}" for name, rows in _streams(results)]
    return f"Evidence over streams of samples: {'; '.join(parts)}"
