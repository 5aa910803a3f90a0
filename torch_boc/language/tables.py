"""The tables of a trace: a row for each token, a row for each sequence, and the Parquet file."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._optional import require, require_pyarrow
from ..data.parquet import ParquetFile
from ..functional.tokens import TOKEN_COLUMNS
from .record import TokenRecord
from .sequence import TextSequence

KIND = "torch_boc.Trace"
KNOWN = ("sequence", "position", "is_prompt", "token", "text")
MORE = ("label", "rivals", "rival_log_probabilities", "rival_texts")  # what only the file has


def columns_of(sequences: Sequence[TextSequence]) -> list[str]:
    """The names of all numbers of the sequences: those that every token has, then the others in their order."""
    found = dict.fromkeys(name for sequence in sequences for name in sequence.numbers)
    return [*TOKEN_COLUMNS, *(name for name in found if name not in TOKEN_COLUMNS)]


def frame(sequences: Sequence[TextSequence]) -> Any:
    """A pandas table with a row for each token."""
    pandas = require("pandas", purpose="tables of tokens need")
    names = columns_of(sequences)
    parts = [_columns(i, sequence, names) for i, sequence in enumerate(sequences)] or [_empty(names)]
    return pandas.concat([pandas.DataFrame(part) for part in parts], ignore_index=True)


def _columns(number: int, sequence: TextSequence, names: Sequence[str]) -> dict[str, Any]:
    record, length = sequence.record, len(sequence.record)
    missing = torch.full((length,), math.nan, dtype=torch.float64)
    place = torch.arange(length)
    known = (torch.full_like(place, number), place, place < record.prompt_length, record.tokens)
    return {
        **{name: column.numpy() for name, column in zip(KNOWN, known, strict=False)},
        "text": sequence.texts,
        **{name: sequence.numbers.get(name, missing).double().numpy() for name in names},
    }


def _empty(names: Sequence[str]) -> dict[str, Any]:
    return {name: [] for name in (*KNOWN, *names)}


def summary(sequences: Sequence[TextSequence]) -> Any:
    """A pandas table with a row for each sequence."""
    pandas = require("pandas", purpose="tables of tokens need")
    rows = [{"sequence": i, **summary_row(sequence)} for i, sequence in enumerate(sequences)]
    return pandas.DataFrame(rows)


def summary_row(sequence: TextSequence) -> dict[str, Any]:
    """The numbers of one sequence, over the tokens that it is about."""
    rows = sequence.summed
    values = {name: column[rows].double() for name, column in sequence.numbers.items()}
    chance, rank = _known(values, "log_probability"), _known(values, "rank")
    lost = _known(values, "lost_coins")
    lowest, place, text = _lowest(sequence, values, rows.start)
    return {
        "tokens": len(sequence.texts[rows]),
        "prompt_tokens": sequence.record.prompt_length,
        "perplexity": math.exp(min(-float(chance.mean()), 700.0)) if len(chance) else math.nan,
        "mean_lost_coins": float(lost.mean()),
        "median_lost_coins": float(lost.quantile(0.5)) if len(lost) else math.nan,
        "mean_confidence": float(_known(values, "confidence").mean()),
        "mean_entropy": float(_known(values, "entropy").mean()),
        "share_of_rank_1": float((rank == 1).double().mean()),
        "lowest_log_probability": lowest,
        "lowest_position": place,
        "lowest_text": text,
        "finish": sequence.record.finish,
    }


def _known(values: Mapping[str, Tensor], name: str) -> Tensor:
    """The numbers of a column that are not NaN."""
    column = values.get(name, torch.empty(0, dtype=torch.float64))
    return column[~column.isnan()]


def _lowest(sequence: TextSequence, values: Mapping[str, Tensor], start: int) -> tuple[float, int, str]:
    """The lowest log-probability, its position and its token; -1 and "" if there is none."""
    if not len(_known(values, "log_probability")):
        return math.nan, -1, ""
    place = int(values["log_probability"].nan_to_num(math.inf, neginf=-math.inf).argmin())
    return float(values["log_probability"][place]), start + place, sequence.labels[start + place]


def write_parquet(sequences: Sequence[TextSequence], path: str | os.PathLike[str], num_classes: int) -> Path:
    """Write all tokens with their likeliest rivals, so that the trace can be read again."""
    arrow, names = require_pyarrow(), columns_of(sequences)
    ends = [{"tokens": len(x.record), "prompt": x.record.prompt_length, "finish": x.record.finish} for x in sequences]
    notes = {"kind": KIND, "num_classes": str(num_classes), "sequences": json.dumps(ends)}
    with ParquetFile(path, notes) as file:
        for number, sequence in enumerate(sequences):
            columns = _columns(number, sequence, names)
            record = sequence.record
            columns["rivals"] = arrow.array(record.rivals.tolist(), arrow.list_(arrow.int64()))
            chances = record.rival_log_probabilities.double().tolist()
            columns["rival_log_probabilities"] = arrow.array(chances, arrow.list_(arrow.float64()))
            columns["rival_texts"] = arrow.array(sequence.rival_labels, arrow.list_(arrow.string()))
            columns["text"] = arrow.array(sequence.texts, arrow.string())
            columns["label"] = arrow.array(sequence.labels, arrow.string())
            file.write_table(arrow.table(columns))
        if not sequences:
            file.write_table(arrow.table(_empty([*names, *MORE])))
    return file.path


def read_parquet(path: str | os.PathLike[str]) -> tuple[list[TokenRecord], int]:
    """The records of a file, and the size of the vocabulary."""
    arrow = require_pyarrow()
    with Path(path).open("rb") as file:
        table = arrow.parquet.read_table(file)
    notes = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    if notes.get("kind") != KIND:
        raise ValueError(f"{path}: expected a table that Trace.to_parquet wrote, got another Parquet file")
    records, start = [], 0
    for ends in json.loads(notes["sequences"]):
        records.append(_record(table.slice(start, ends["tokens"]), ends))
        start += ends["tokens"]
    return records, int(notes["num_classes"])


def _record(table: Any, ends: Mapping[str, Any]) -> TokenRecord:
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    numbers = {
        name: torch.tensor([math.nan if x is None else x for x in values], dtype=torch.float64)
        for name, values in columns.items()
        if name not in (*KNOWN, *MORE)
    }
    shape = (ends["tokens"], -1) if ends["tokens"] else (0, 0)
    return TokenRecord(
        torch.tensor(columns["token"], dtype=torch.int64),
        numbers,
        torch.tensor(columns["rivals"], dtype=torch.int64).reshape(shape),
        torch.tensor(columns["rival_log_probabilities"], dtype=torch.float64).reshape(shape),
        ends["prompt"],
        columns["text"],
        columns["rival_texts"],
        ends["finish"],
        columns["label"],
    )
