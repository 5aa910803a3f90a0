"""What the script of a page reads: the scales, each label once, and the numbers of the tokens."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .scales import LEVELS, Scale, rounded
from .sequence import TextSequence

ENDS = ("_lower", "_upper")


class Labels:
    """The labels of tokens, each once: a token is found by its id, or by its text if the id is not known."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[int | str, int] = {}

    def place(self, token: int, text: str) -> int:
        """The place of a label among the texts; -1 if there is no text."""
        if not text:
            return -1
        key = token if token >= 0 else text
        if key not in self._places:
            self._places[key] = len(self.texts)
            self.texts.append(visible(text))
        return self._places[key]


def visible(label: str) -> str:
    r"""A label in which spaces at the ends and line breaks can be seen.

    >>> visible(" the"), visible("\n")
    ('␣the', '↵')
    """
    body = label.strip(" ")
    before = len(label) - len(label.lstrip(" ")) if body else len(label)
    after = len(label) - before - len(body)
    return "␣" * before + body.replace("\n", "↵").replace("\t", "⇥") + "␣" * after


def script_data(sequences: Sequence[TextSequence], scales: Mapping[str, Scale]) -> dict[str, Any]:
    """The content of the page's JSON."""
    labels = Labels()
    parts = [_numbers(sequence, scales, labels) for sequence in sequences]
    shown = {name: [scale.title, *scale.edges] for name, scale in scales.items()}
    return {"levels": LEVELS, "scales": shown, "labels": labels.texts, "sequences": parts}


def _numbers(sequence: TextSequence, scales: Mapping[str, Scale], labels: Labels) -> dict[str, Any]:
    record, rows = sequence.record, slice(sequence.first, None)
    tokens = zip(record.tokens[rows].tolist(), sequence.labels[rows], strict=True)
    rivals = zip(record.rivals[rows].tolist(), sequence.rival_labels[rows], strict=True)
    names = [*scales, *(name + end for name in scales for end in ENDS)]
    return {
        "first": sequence.first,
        "tokens": [labels.place(*pair) for pair in tokens],
        "rivals": [[labels.place(*pair) for pair in zip(*row, strict=True)] for row in rivals],
        "chances": [_short(row) for row in record.rival_log_probabilities[rows].tolist()],
        "numbers": {name: _short(sequence.numbers[name][rows].tolist()) for name in names if name in sequence.numbers},
    }


def _short(values: Sequence[float]) -> list[float | int | None]:
    """Numbers in four digits for JSON; None where there is none."""
    found = (x if math.isfinite(x) else None for x in rounded(values))
    return [int(x) if x is not None and x == int(x) else x for x in found]
