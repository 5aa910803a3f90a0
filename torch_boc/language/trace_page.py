"""A trace as HTML: a page in one file, which loads nothing."""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..report.format import counted
from ..report.render import environment
from .record import TokenRecord

_TEMPLATES = environment(Path(__file__).with_name("templates"))


class Scale(NamedTuple):
    """How a quantity of a token is shown.

    Attributes:
        title: what people call it.
        edges: the 7 values at which the 8 levels of tint meet. They rise if a high value is tinted, and fall if a low
            one is.
        meaning: a sentence about it.
    """

    title: str
    edges: tuple[float, ...]
    meaning: str

    def level(self, value: float) -> int:
        """The level of tint of a value, from 0 to 7; -1 if there is none.

        >>> SCALES["rank"].level(1), SCALES["rank"].level(4), SCALES["confidence"].level(0.01)
        (0, 2, 7)
        """
        sign = 1 if self.edges[0] < self.edges[1] else -1
        return -1 if math.isnan(value) else bisect_right([sign * edge for edge in self.edges], sign * value)

    def legend(self) -> list[str]:
        """The values of each level of tint.

        >>> SCALES["confidence"].legend()[:2], SCALES["rank"].legend()[:2]
        (['>.98', '≤.98'], ['<2', '≥2'])
        """
        below, above = ("<", "≥") if self.edges[0] < self.edges[1] else (">", "≤")
        values = [re.sub(r"^(-?)0\.", r"\1.", written(edge)) for edge in self.edges]
        return [below + values[0], *(above + value for value in values)]


_LOST = (
    "how many of its coin flips, one against each other token, the likeliest token is expected to lose. A token that "
    "is as likely adds 0.5, and one that is hardly likely adds next to nothing."
)
_EMITTED = "the logarithm of the probability of the emitted token."
SCALES = {
    "lost_coins": Scale("lost coins", (0.125, 0.25, 0.5, 1, 2, 4, 8), _LOST),
    "confidence": Scale("confidence", (0.98, 0.9, 0.75, 0.6, 0.45, 0.3, 0.15), "the likeliest token's probability."),
    "entropy": Scale("entropy", (0.1, 0.5, 1, 2, 3, 4, 5), "of all probabilities, in nats."),
    "rank": Scale("rank", (2, 3, 5, 10, 30, 100, 1000), "the rank of the emitted token, 1 for the likeliest."),
    "log_probability": Scale("log-probability", (-0.1, -0.5, -1, -2, -4, -6, -9), _EMITTED),
}


def written(value: float) -> str:
    """A number in at most four digits; a dash for NaN.

    >>> written(0.98765), written(12345.0), written(3e-7), written(2.0), written(math.nan)
    ('0.9877', '12345', '3e-07', '2', '–')
    """
    return "–" if math.isnan(value) else f"{value:.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def page(sequences: Sequence[TokenRecord], num_classes: int, quantity: str, title: str) -> str:
    """The whole page; see `Trace.html`."""
    if quantity not in SCALES:
        raise ValueError(f"expected a quantity among {', '.join(SCALES)}, got {quantity!r}")
    return _TEMPLATES.get_template("trace.html.jinja").render(
        title=title or "Uncertainty of the model, token by token",
        headline=f"{counts(sequences)}, a vocabulary of {num_classes:,} tokens.",
        quantity=quantity,
        scales=SCALES,
        views=[_view(i, x, quantity) for i, x in enumerate(sequences, start=1)],
        glossary=[(x.title, x.meaning) for x in SCALES.values()],
        data=_script_data(sequences),
    )


def counts(records: Sequence[TokenRecord]) -> str:
    """How many sequences and tokens there are."""
    total, prompt = sum(len(x) for x in records), sum(x.prompt_length for x in records)
    prompts = f", {prompt:,} of them prompt" if prompt else ""
    return f"{counted(len(records), 'sequence')}, {counted(total, 'token')}{prompts}"


def headline(sequence: TokenRecord) -> str:
    """What there is to say of a sequence in one line."""
    row = sequence.summary()
    parts = {
        "perplexity": f"perplexity {written(row['perplexity'])}",
        "mean_lost_coins": f"{written(row['mean_lost_coins'])} lost coins on average",
        "mean_confidence": f"a mean confidence of {written(row['mean_confidence'])}",
        "share_of_rank_1": f"{100 * row['share_of_rank_1']:.0f} % the likeliest",
        "lowest_log_probability": f"least likely: {visible(row['lowest_text'])} at {row['lowest_position'] + 1}",
    }
    texts = [text for name, text in parts.items() if not math.isnan(row[name])]
    texts += [f"ended by {row['finish']}"] if row["finish"] else []
    return ", ".join([counted(row["tokens"], "token"), *texts])


def visible(label: str) -> str:
    r"""A label in which spaces at the ends and line breaks can be seen.

    >>> visible(" the"), visible("\n")
    ('␣the', '↵')
    """
    shown = re.sub("^ +| +$", lambda spaces: "␣" * len(spaces[0]), label)
    return shown.replace("\n", "↵").replace("\t", "⇥")


def _view(number: int, sequence: TokenRecord, quantity: str) -> dict[str, Any]:
    """A sequence as the page shows it: the texts of its tokens with the classes of their elements."""
    start, pieces = sequence.prompt_length, []
    for text, value in zip(sequence.texts, sequence.column(quantity).tolist(), strict=True):
        level = SCALES[quantity].level(value)
        # Tokens that cannot be seen get a class of their own, by which the style shows a sign.
        unseen = " part" if not text else " line" if not text.strip("\r\n") else ""
        pieces.append((text, f"q{level if level >= 0 else 'n'}{unseen}"))
    prompt = pieces[:start] if sequence.first == 0 else [("".join(sequence.texts[:start]), "")]
    parts = [("Prompt", "prompt", prompt), ("Generated" if start else "", "answer", pieces[start:])]
    shown = [part for part in parts if part[2]]
    return {"title": f"Sequence {number}", "headline": headline(sequence), "parts": shown}


def _script_data(sequences: Sequence[TokenRecord]) -> dict[str, Any]:
    """What the script of the page reads: the scales, each label once, and the numbers of the tokens."""
    labels: dict[int, tuple[int, str]] = {}  # each label and its index, by the id of a token

    def label_index(token: int, text: str) -> int:
        return labels.setdefault(token, (len(labels), visible(text)))[0] if token >= 0 else -1

    numbered = []
    for sequence in sequences:
        rows, numbers = slice(sequence.first, None), sequence.numbers
        rivals = zip(sequence.rivals[rows].tolist(), sequence.rival_texts[rows], strict=True)
        numbered.append(
            {
                "first": sequence.first,
                "tokens": list(map(label_index, sequence.tokens[rows].tolist(), sequence.labels[rows])),
                "rivals": [list(map(label_index, *row)) for row in rivals],
                "chances": [_short(row) for row in sequence.rival_log_probabilities[rows].tolist()],
                "numbers": {name: _short(numbers[name][rows].tolist()) for name in SCALES if name in numbers},
            }
        )
    shown = {name: [scale.title, *scale.edges] for name, scale in SCALES.items()}
    return {"levels": 8, "scales": shown, "labels": [label for _, label in labels.values()], "sequences": numbered}


def _short(values: Sequence[float]) -> list[float | int | None]:
    """Numbers in four digits for JSON; None where there is none."""
    rounded = (float(f"{x:.4g}") if math.isfinite(x) else None for x in values)
    return [int(x) if x is not None and x == int(x) else x for x in rounded]
