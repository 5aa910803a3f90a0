"""A trace as HTML: a page in one file, which loads nothing, and a short form for notebooks."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..report.document import environment
from ..report.parts import Cell, Table
from .record import TextSequence, columns_of
from .scales import LEVELS, REQUESTED, SHOWN, Scale, scale_of, written

_TEMPLATES = environment(Path(__file__).with_name("templates"))
NOTEBOOK_TOKENS = 600
ENDS = ("_lower", "_upper")
# The columns of the summary: their titles, and the names of their means.
MEANS = {
    "perplexity": "perplexity",
    "lost coins": "mean_lost_coins",
    "median": "median_lost_coins",
    "confidence": "mean_confidence",
    "entropy": "mean_entropy",
    "rank 1": "share_of_rank_1",
}


class Part(NamedTuple):
    """The prompt, or what was generated after it.

    Attributes:
        title: stands above it.
        kind: "prompt" or "answer".
        pieces: the text of each token, and the classes of its element; no classes for text that is not scored.
    """

    title: str
    kind: str
    pieces: list[tuple[str, str]]


class View(NamedTuple):
    """A sequence as the page shows it."""

    title: str
    headline: str
    parts: list[Part]


def page(sequences: Sequence[TextSequence], num_classes: int, quantity: str, title: str) -> str:
    """The whole page; see `Trace.html`."""
    scales = _scales(sequences, quantity)
    scale = scales[quantity]
    views = [View(f"Sequence {i + 1}", headline(x), _parts(x, scale)) for i, x in enumerate(sequences)]
    total = sum(len(sequence.texts) for sequence in sequences)
    prompt = sum(sequence.record.prompt_length for sequence in sequences)
    told = f", {prompt:,} of them prompt" if prompt else ""
    counts = f"{_count(len(sequences), 'sequence')}, {_count(total, 'token')}{told}"
    rivals = f"{num_classes - 1:,}"
    return _TEMPLATES.get_template("trace.html.jinja").render(
        title=title or "How sure the model was, token by token",
        headline=f"{counts}, a vocabulary of {num_classes:,} tokens.",
        scale=scale,
        names={name: x.title for name, x in scales.items()},
        legend=legend(scale),
        views=views,
        table=_table(sequences),
        glossary=[(x.title, x.meaning.replace("{rivals}", rivals)) for x in scales.values()],
        data=_script_data(sequences, scales),
    )


def short_page(sequences: Sequence[TextSequence], num_classes: int) -> str:
    """The beginning of the text, tinted by lost coins, for a notebook."""
    scale = _scales(sequences, "lost_coins")["lost_coins"]
    views, left = [], NOTEBOOK_TOKENS
    for i, sequence in enumerate(sequences):
        if left > 0:
            parts = [part._replace(pieces=part.pieces[:left]) for part in _parts(sequence, scale)]
            views.append(View(f"Sequence {i + 1}", headline(sequence), parts))
        left -= len(sequence.texts)
    return _TEMPLATES.get_template("short.html.jinja").render(
        views=views, scale=scale, legend=legend(scale), more=max(0, -left), num_classes=num_classes
    )


def headline(sequence: TextSequence) -> str:
    """What there is to say of a sequence in one line."""
    row = sequence.summary()
    said = [_count(row["tokens"], "token")]
    said += [f"perplexity {written(row['perplexity'])}"] if not math.isnan(row["perplexity"]) else []
    lost = row["mean_lost_coins"]
    said += [f"{written(lost)} lost coins on average"] if not math.isnan(lost) else []
    said += [f"{row['share_of_rank_1']:.0%} the likeliest".replace("%", " %")] if row["share_of_rank_1"] >= 0 else []
    said += [f"ended by {row['finish']}"] if row["finish"] else []
    return ", ".join(said)


def legend(scale: Scale) -> list[str]:
    """The values of each level of tint.

    >>> legend(scale_of("confidence", []))[:2], legend(scale_of("rank", []))[:2]
    (['>.98', '≤.98'], ['<2', '≥2'])
    """
    below, above = ("<", "≥") if scale.rising else (">", "≤")
    values = [re.sub(r"^(-?)0\.", r"\1.", written(edge)) for edge in scale.edges]
    return [below + values[0], *(above + value for value in values)]


def visible(label: str) -> str:
    r"""A label in which spaces at the ends and line breaks can be seen.

    >>> visible(" the"), visible("\n")
    ('␣the', '↵')
    """
    body = label.strip(" ")
    before = len(label) - len(label.lstrip(" ")) if body else len(label)
    after = len(label) - before - len(body)
    return "␣" * before + body.replace("\n", "↵").replace("\t", "⇥") + "␣" * after


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


def _parts(sequence: TextSequence, scale: Scale) -> list[Part]:
    start, column = sequence.record.prompt_length, sequence.numbers.get(scale.name)
    values = [math.nan] * len(sequence.texts) if column is None else column.tolist()
    pieces = []
    for text, value in zip(sequence.texts, values, strict=True):
        level = scale.level(value)
        # Tokens that cannot be seen get a class of their own, by which the style shows a sign.
        unseen = " part" if not text else " line" if not text.strip("\r\n") else ""
        pieces.append((text, f"q{level if level >= 0 else 'n'}{unseen}"))
    prompt = pieces[:start] if sequence.first == 0 else [("".join(sequence.texts[:start]), "")]
    parts = [Part("Prompt", "prompt", prompt), Part("Generated" if start else "", "answer", pieces[start:])]
    return [part for part in parts if part.pieces]


def _table(sequences: Sequence[TextSequence]) -> Table:
    rows = []
    for number, row in enumerate((sequence.summary() for sequence in sequences), start=1):
        means = [Cell("–" if math.isnan(row[name]) else f"{row[name]:.3g}") for name in MEANS.values()]
        lowest, place = row["lowest_log_probability"], f"{visible(row['lowest_text'])} at {row['lowest_position'] + 1}"
        last = Cell("–") if math.isnan(lowest) else Cell(f"{lowest:.1f}", place)
        rows.append([Cell(str(number), row["finish"]), Cell(f"{row['tokens']:,}"), *means, last])
    caption = "The generated tokens of each sequence: means, and the least likely token."
    return Table(caption, ["sequence", "tokens", *MEANS, "least likely"], rows)


def _script_data(sequences: Sequence[TextSequence], scales: Mapping[str, Scale]) -> dict[str, Any]:
    """What the script of the page reads: the scales, each label once, and the numbers of the tokens."""
    labels: list[str] = []
    places: dict[int | str, int] = {}  # by the id of a token, or by its text if the id is not known

    def place(token: int, text: str) -> int:
        if not text:
            return -1
        key = token if token >= 0 else text
        if key not in places:
            places[key] = len(labels)
            labels.append(visible(text))
        return places[key]

    found = []
    names = [*scales, *(name + end for name in scales for end in ENDS)]
    for sequence in sequences:
        record, rows = sequence.record, slice(sequence.first, None)
        rivals = zip(record.rivals[rows].tolist(), sequence.rival_labels[rows], strict=True)
        numbers = {name: sequence.numbers[name][rows].tolist() for name in names if name in sequence.numbers}
        found.append(
            {
                "first": sequence.first,
                "tokens": list(map(place, record.tokens[rows].tolist(), sequence.labels[rows])),
                "rivals": [list(map(place, *row)) for row in rivals],
                "chances": [_short(row) for row in record.rival_log_probabilities[rows].tolist()],
                "numbers": {name: _short(values) for name, values in numbers.items()},
            }
        )
    shown = {name: [scale.title, *scale.edges] for name, scale in scales.items()}
    return {"levels": LEVELS, "scales": shown, "labels": labels, "sequences": found}


def _short(values: Sequence[float]) -> list[float | int | None]:
    """Numbers in four digits for JSON; None where there is none."""
    found = (float(f"{x:.4g}") if math.isfinite(x) else None for x in values)
    return [int(x) if x is not None and x == int(x) else x for x in found]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
