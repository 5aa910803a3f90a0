"""A trace as HTML: a page in one file, which loads nothing, and a short form for notebooks."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..pages import Cell, Table, environment
from .page_data import ENDS, script_data, visible
from .scales import REQUESTED, SHOWN, Scale, rounded, scale_of, written
from .sequence import TextSequence
from .strip import Strip, strip_of
from .tables import columns_of, summary_row

_TEMPLATES = environment(Path(__file__).with_name("templates"))
NOTEBOOK_TOKENS = 600


class Piece(NamedTuple):
    """The text of a token on the page, and the classes of its element; no classes for text that is not scored."""

    text: str
    classes: str


class Part(NamedTuple):
    """The prompt, or what was generated after it."""

    title: str
    kind: str
    pieces: list[Piece]


class View(NamedTuple):
    """A sequence as the page shows it."""

    title: str
    headline: str
    parts: list[Part]
    strip: Strip


def page(sequences: Sequence[TextSequence], num_classes: int, quantity: str, title: str) -> str:
    """The whole page; see `Trace.html`."""
    scales = _scales(sequences, quantity)
    views = [_view(i, sequence, scales[quantity]) for i, sequence in enumerate(sequences)]
    total = sum(len(sequence.texts) for sequence in sequences)
    names = {name: scale.title for name, scale in scales.items()}
    prompt = sum(sequence.record.prompt_length for sequence in sequences)
    told = f", {prompt:,} of them prompt" if prompt else ""
    counts = f"{_count(len(sequences), 'sequence')}, {_count(total, 'token')}{told}"
    return _TEMPLATES.get_template("trace.html.jinja").render(
        title=title or "How sure the model was, token by token",
        headline=f"{counts}, a vocabulary of {num_classes:,} tokens.",
        scale=scales[quantity],
        names=names,
        legend=legend(scales[quantity]),
        views=views,
        table=_table(sequences),
        glossary=[(scale.title, scale.told(num_classes)) for scale in scales.values()],
        data=script_data(sequences, scales),
    )


def short_page(sequences: Sequence[TextSequence], num_classes: int) -> str:
    """The beginning of the text, tinted by lost coins, for a notebook."""
    scale = _scales(sequences, "lost_coins")["lost_coins"]
    views, left = [], NOTEBOOK_TOKENS
    for i, sequence in enumerate(sequences):
        parts = [Part(part.title, part.kind, part.pieces[: max(0, left)]) for part in _parts(sequence, scale)]
        if left > 0:
            views.append(View(f"Sequence {i + 1}", headline(sequence), parts, Strip("", "", [], "")))
        left -= len(sequence.texts)
    return _TEMPLATES.get_template("short.html.jinja").render(
        views=views, scale=scale, legend=legend(scale), more=max(0, -left), num_classes=num_classes
    )


def _scales(sequences: Sequence[TextSequence], quantity: str) -> dict[str, Scale]:
    """The quantities that the page can show, by name; the wanted one is among them, or it is an error."""
    names = [name for name in columns_of(sequences) if not name.endswith(ENDS)]
    if quantity not in names:
        raise ValueError(f"expected a quantity among {', '.join(names)}, got {quantity!r}")
    further = [name for name in names if name not in (*SHOWN, *REQUESTED)]
    found = {}
    for name in (*SHOWN, *further, *REQUESTED):
        values = [x for sequence in sequences if name in sequence.numbers for x in sequence.numbers[name].tolist()]
        told = any(x != 0 for x in values if not math.isnan(x)) or name in SHOWN[:1]
        if name == quantity or (told and name not in REQUESTED):
            found[name] = scale_of(name, values)
    return found


def legend(scale: Scale) -> list[str]:
    """The values of each level of tint.

    >>> legend(scale_of("confidence", []))[:2], legend(scale_of("rank", []))[:2]
    (['>.98', '≤.98'], ['<2', '≥2'])
    """
    below, above = ("<", "≥") if scale.rising else (">", "≤")
    values = [re.sub(r"^(-?)0\.", r"\1.", written(edge)) for edge in scale.edges]
    return [below + values[0], *(above + value for value in values)]


def headline(sequence: TextSequence) -> str:
    """What there is to say of a sequence in one line."""
    row = summary_row(sequence)
    said = [_count(row["tokens"], "token")]
    said += [f"perplexity {written(row['perplexity'])}"] if not math.isnan(row["perplexity"]) else []
    lost = row["mean_lost_coins"]
    said += [f"{written(lost)} lost coins on average"] if not math.isnan(lost) else []
    said += [f"{row['share_of_rank_1']:.0%} the likeliest".replace("%", " %")] if row["share_of_rank_1"] >= 0 else []
    said += [f"ended by {row['finish']}"] if row["finish"] else []
    return ", ".join(said)


def _view(number: int, sequence: TextSequence, scale: Scale) -> View:
    strip = strip_of(_values(sequence, scale)[sequence.first :], scale)
    return View(f"Sequence {number + 1}", headline(sequence), _parts(sequence, scale), strip)


def _values(sequence: TextSequence, scale: Scale) -> list[float]:
    """The numbers of the tokens, rounded as in the data of the script, so that both draw the same."""
    column = sequence.numbers.get(scale.name)
    return rounded(column.tolist()) if column is not None else [math.nan] * len(sequence.texts)


def _parts(sequence: TextSequence, scale: Scale) -> list[Part]:
    start = sequence.record.prompt_length
    pairs = zip(sequence.texts, _values(sequence, scale), strict=True)
    pieces = [_piece(text, scale.level(value)) for text, value in pairs]
    prompt = pieces[:start] if sequence.first == 0 else [Piece("".join(sequence.texts[:start]), "")]
    parts = [Part("Prompt", "prompt", prompt), Part("Generated" if start else "", "answer", pieces[start:])]
    return [part for part in parts if part.pieces]


def _piece(text: str, level: int) -> Piece:
    """Tokens that cannot be seen get a class of their own, by which the style shows a sign."""
    unseen = " part" if not text else " line" if not text.strip("\r\n") else ""
    return Piece(text, f"q{level if level >= 0 else 'n'}{unseen}")


def _table(sequences: Sequence[TextSequence]) -> Table:
    columns = [
        "sequence",
        "tokens",
        "perplexity",
        "lost coins",
        "median",
        "confidence",
        "entropy",
        "rank 1",
        "least likely",
    ]
    rows = [_row(i, summary_row(sequence)) for i, sequence in enumerate(sequences)]
    return Table("The generated tokens of each sequence: means, and the least likely token.", columns, rows)


def _row(number: int, row: Mapping[str, Any]) -> list[Cell]:
    names = ("perplexity", "mean_lost_coins", "median_lost_coins", "mean_confidence", "mean_entropy", "share_of_rank_1")
    cells = [Cell("–" if math.isnan(row[name]) else f"{row[name]:.3g}") for name in names]
    lowest = row["lowest_log_probability"]
    place = f"{visible(row['lowest_text'])} at {row['lowest_position'] + 1}"
    last = Cell("–") if math.isnan(lowest) else Cell(f"{lowest:.1f}", place)
    return [Cell(str(number + 1), row["finish"]), Cell(f"{row['tokens']:,}"), *cells, last]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
