"""A trace: the tokens of one or more sequences with their numbers, as a table, a Parquet file and a page."""

import os
from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from torch import Tensor

from .._optional import require, require_pyarrow
from ..data.atomic import check_file, replacing
from ..data.parquet import ParquetFile
from ..functional.checks import check_classes
from ..functional.tokens import TOKEN_COLUMNS
from .record import TokenRecord
from .trace_page import counts, page


class Trace:
    """The tokens of one or more sequences, each with the numbers of the probe at its position.

    The page shows lost coins, confidence, entropy, rank and log-probability. The coherence gap and the concentration
    are in the tables only: with 49,152 classes the gap is 1 - confidence to 99.998 %, and says nothing of its own.

    Args:
        records: one for each sequence.
        num_classes: the size of the vocabulary.
        tokenizer: turns tokens into text; without it, token ids are shown.

    >>> numbers = {name: torch.tensor([0.5, 1.5], dtype=torch.float64) for name in ("lost_coins", "log_probability")}
    >>> rivals = torch.tensor([[3], [2]])
    >>> record = TokenRecord(torch.tensor([3, 1]), numbers, rivals, torch.zeros(2, 1))
    >>> trace = Trace([record], num_classes=5)
    >>> trace.text(), trace.to_frame()["lost_coins"].tolist()
    ('[3][1]', [0.5, 1.5])
    """

    def __init__(self, records: Sequence[TokenRecord], *, num_classes: int, tokenizer: Any = None) -> None:
        self.records, self.num_classes, self.tokenizer = list(records), check_classes(num_classes), tokenizer

    @cached_property
    def sequences(self) -> list[TokenRecord]:
        """The records with the texts of their tokens."""
        return [record.with_texts(self.tokenizer) for record in self.records]

    def text(self, sequence: int = 0, *, prompt: bool = True) -> str:
        """The text of a sequence, with or without its prompt."""
        start = 0 if prompt else self.records[sequence].prompt_length
        return "".join(self.sequences[sequence].texts[start:])

    def to_frame(self) -> Any:
        """A pandas table with one row per token: sequence, position, is_prompt, token, text, and its numbers."""
        pandas = require("pandas", purpose="tables of tokens need")
        rows = [
            (number, position, position < record.prompt_length, token, text)
            for number, record in enumerate(self.sequences)
            for position, (token, text) in enumerate(zip(record.tokens.tolist(), record.texts, strict=True))
        ]
        frame = pandas.DataFrame(rows, columns=["sequence", "position", "is_prompt", "token", "text"])
        for name in dict.fromkeys([*TOKEN_COLUMNS, *(name for record in self.records for name in record.numbers)]):
            frame[name] = [x for record in self.records for x in record.column(name).tolist()]
        return frame

    def summary(self) -> Any:
        """A pandas table with one row per sequence: perplexity, and the means of the numbers.

        They are of the generated tokens, or of the prompt if nothing was generated. Tokens without numbers are left
        out.
        """
        rows = [{"sequence": i, **sequence.summary()} for i, sequence in enumerate(self.sequences)]
        return require("pandas", purpose="tables of tokens need").DataFrame(rows)

    def to_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Write the table and the likeliest tokens at each position to a Parquet file; returns its path."""
        columns = {name: column.to_numpy() for name, column in self.to_frame().items()}
        for name in ("labels", "rivals", "rival_log_probabilities", "rival_texts"):
            parts = [getattr(record, name) for record in self.sequences]
            columns[name] = [row for part in parts for row in (part.tolist() if isinstance(part, Tensor) else part)]
        table = require_pyarrow().table(columns)
        with ParquetFile(path) as file:
            file.write(dict(zip(table.column_names, table.columns, strict=True)))
        return file.path

    def html(self, quantity: str = "lost_coins", *, title: str = "") -> str:
        """A page in one file: the text with its tokens tinted by a quantity, and the numbers of each token.

        Args:
            quantity: "lost_coins", "confidence", "entropy", "rank" or "log_probability". The page can switch.
            title: stands at the top of the page.
        """
        return page(self.sequences, self.num_classes, quantity, title)

    def save(self, path: str | os.PathLike[str], quantity: str = "lost_coins", *, title: str = "") -> Path:
        """Write the page to a file; returns its path."""
        with replacing(check_file(path)) as temporary:
            temporary.write_text(self.html(quantity, title=title), encoding="utf-8")
        return Path(path)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int | slice) -> "Trace":
        chosen = self.records[index] if isinstance(index, slice) else [self.records[index]]
        return Trace(chosen, num_classes=self.num_classes, tokenizer=self.tokenizer)

    def __repr__(self) -> str:
        return f"<Trace: {counts(self.records)}, {self.num_classes:,} classes>"

    def _repr_html_(self) -> str:
        return f"<iframe srcdoc='{escape(self.html())}' style='width: 100%; height: 32em; border: 0'></iframe>"
