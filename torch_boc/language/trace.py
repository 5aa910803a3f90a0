"""A trace: the tokens of one or more sequences with their numbers, as a table and as a page."""

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..data.atomic import check_file, replacing
from ..functional.checks import check_classes
from .page import headline, page, short_page
from .record import TokenRecord
from .responses import records_of_response
from .scales import written
from .sequence import TextSequence, sequence_of
from .tables import frame, read_parquet, summary, write_parquet


class Trace:
    """The tokens of one or more sequences, each with the numbers of the probe at its place.

    Lost coins, confidence, entropy, rank and log-probability come first, in tables and on the page. The coherence gap
    and the concentration are in the tables too, but on the page only if they are asked for: with 49,152 classes the gap
    is 1 - confidence to 99.998 %, and says nothing of its own.

    Args:
        records: one for each sequence.
        num_classes: the size of the vocabulary.
        tokenizer: turns tokens into text; without it, and without texts in the records, token ids are shown.

    >>> numbers = {name: torch.tensor([0.5, 1.5], dtype=torch.float64) for name in ("lost_coins", "log_probability")}
    >>> rivals = torch.tensor([[3], [2]])
    >>> record = TokenRecord(torch.tensor([3, 1]), numbers, rivals, torch.zeros(2, 1), texts=["a", "b"])
    >>> trace = Trace([record], num_classes=5)
    >>> trace.text(), trace.to_frame()["lost_coins"].tolist()
    ('ab', [0.5, 1.5])
    """

    def __init__(self, records: Sequence[TokenRecord], *, num_classes: int, tokenizer: Any = None) -> None:
        self.records, self.num_classes, self.tokenizer = list(records), check_classes(num_classes), tokenizer
        for record in self.records:
            _check(record)
        self._sequences: list[TextSequence] | None = None

    @classmethod
    def from_response(
        cls, response: Any, *, num_classes: int, choice: int | None = None, tokenizer: Any = None
    ) -> "Trace":
        """The trace of what a server of language models returned with log-probabilities; see `read_response`.

        Log-probability, confidence and odds are exact. Of lost coins, gap and concentration the few likeliest tokens
        give bounds, which are in the columns `NAME_lower` and `NAME_upper`; the column `NAME` has their middle. The
        entropy is not known. The rank is known if the token is among the likeliest, or if the server says it. All of
        them are NaN where the likeliest token is not known. They are NaN, and a warning counts the tokens, where the
        given log-probabilities cannot sum to 1 whatever the others are.

        Args:
            response: an OpenAI chat or text completion, or vLLM's `RequestOutput`: as an object, a dictionary or JSON.
                In a text completion with `echo=True` the prompt counts as generated, because nothing in the response
                says where it ends.
            num_classes: the size of the vocabulary.
            choice: which of several choices; all by default.
            tokenizer: only needed if the server returned token ids without texts.
        """
        records = records_of_response(response, num_classes=num_classes)
        if choice is None:
            return cls(records, num_classes=num_classes, tokenizer=tokenizer)
        if not -len(records) <= choice < len(records):
            raise ValueError(f"expected a choice from 0 to {len(records) - 1}, got {choice}")
        return cls([records[choice]], num_classes=num_classes, tokenizer=tokenizer)

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str]) -> "Trace":
        """A trace that `to_parquet` wrote. It has the texts, so that it needs no tokenizer."""
        records, num_classes = read_parquet(path)
        return cls(records, num_classes=num_classes)

    @property
    def sequences(self) -> list[TextSequence]:
        """The sequences with the texts of their tokens."""
        if self._sequences is None:
            self._sequences = [sequence_of(record, self.tokenizer) for record in self.records]
        return self._sequences

    def text(self, sequence: int = 0, *, prompt: bool = True) -> str:
        """The text of a sequence, with or without its prompt."""
        start = 0 if prompt else self.records[sequence].prompt_length
        return "".join(self.sequences[sequence].texts[start:])

    def to_frame(self) -> Any:
        """A pandas table with a row for each token: sequence, position, is_prompt, token, text, and its numbers."""
        return frame(self.sequences)

    def summary(self) -> Any:
        """A pandas table with a row for each sequence: perplexity, and the means of the numbers.

        They are of the generated tokens, or of the prompt if nothing was generated. Tokens without numbers are left
        out.
        """
        return summary(self.sequences)

    def headlines(self) -> list[str]:
        """A line for each sequence: how many tokens, perplexity, lost coins, and why it ended."""
        return [headline(sequence) for sequence in self.sequences]

    def to_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Write the table and the likeliest tokens at each place to a Parquet file; returns its path."""
        return write_parquet(self.sequences, path, self.num_classes)

    def html(self, quantity: str = "lost_coins", *, title: str = "") -> str:
        """A page in one file: the text with its tokens tinted by a quantity, and the numbers of each token.

        Args:
            quantity: a column of the table, such as "lost_coins", "confidence" or "rank". The page can switch to
                others.
            title: stands at the top of the page.
        """
        return page(self.sequences, self.num_classes, quantity, title)

    def save(self, path: str | os.PathLike[str], quantity: str = "lost_coins", *, title: str = "") -> Path:
        """Write the page to a file; returns its path."""
        path = check_file(path)
        source = self.html(quantity, title=title)
        with replacing(path) as temporary:
            temporary.write_text(source, encoding="utf-8")
        return path

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, place: int | slice) -> "Trace":
        chosen = self.records[place] if isinstance(place, slice) else [self.records[place]]
        found = Trace(chosen, num_classes=self.num_classes, tokenizer=self.tokenizer)
        if self._sequences is not None:
            found._sequences = self._sequences[place] if isinstance(place, slice) else [self._sequences[place]]
        return found

    def __iter__(self) -> Iterator["Trace"]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        total, prompt = (sum(map(f, self.records)) for f in (len, lambda record: record.prompt_length))
        count = f"{len(self)} sequence{'' if len(self) == 1 else 's'}"
        told = f"Trace of {count}, {total:,} tokens ({prompt:,} of the prompt), {self.num_classes:,} classes"
        if len(self) != 1:
            return f"<{told}>"
        numbers = summary(self.sequences).iloc[0]
        known = {"perplexity": numbers["perplexity"], "mean lost coins": numbers["mean_lost_coins"]}
        return f"<{told}{''.join(f', {name} {written(x)}' for name, x in known.items() if not math.isnan(x))}>"

    def _repr_html_(self) -> str:
        return short_page(self.sequences, self.num_classes)


def _check(record: TokenRecord) -> None:
    """Raise if the parts of a record have different lengths."""
    parts = {**record.numbers, "rivals": record.rivals, "rival_log_probabilities": record.rival_log_probabilities}
    texts = {"texts": record.texts} if record.texts is not None else {}
    for name, part in {**parts, **texts}.items():
        if len(part) != len(record.tokens):
            raise ValueError(f"expected {name} of {len(record.tokens)} tokens, got {len(part)}")
