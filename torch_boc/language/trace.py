"""A trace: the tokens of one or more sequences with their numbers, as a table and as a page."""

from collections.abc import Sequence
from typing import Any

from .record import TokenRecord


class Trace:
    """The tokens of one or more sequences, each with the numbers of the probe at its place.

    Args:
        records: one for each sequence.
        num_classes: the size of the vocabulary.
        tokenizer: turns tokens into text; without it, and without texts in the records, token ids are shown.
    """

    def __init__(self, records: Sequence[TokenRecord], *, num_classes: int, tokenizer: Any = None) -> None:
        self.records, self.num_classes, self.tokenizer = list(records), num_classes, tokenizer
