"""The numbers of every token of every set, computed once and kept in a folder."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.language.texts import TextSet
from torch_boc.data.atomic import replacing
from torch_boc.functional import bag_of_coins
from torch_boc.functional.bounds import forced_gap
from torch_boc.functional.registry import unsaturated_scores
from torch_boc.functional.tokens import TOKEN_COLUMNS, token_numbers
from torch_boc.transformers.teacher_forcing import causal_model, check_windows, text_logits

LONGEST, SHORTEST = 128, 24
Columns = dict[str, Tensor]


class Model(NamedTuple):
    """A causal model, its tokenizer, the tokens before every text, and what share of the texts it reads."""

    name: str
    model: Any
    tokenizer: Any
    before: tuple[int, ...] = ()
    share: float = 1.0

    @property
    def classes(self) -> int:
        return int(self.model.config.vocab_size)


def collect(model: Model, name: str, texts: TextSet, data: Path, cache: Path) -> Columns:
    """The columns of a set. What the folder `cache` has is not computed again; every new document is put there."""
    path = cache / f"{model.name}, {name}.pt".replace(", ", "_").replace(" ", "-")
    columns: Columns = torch.load(path, weights_only=True) if path.exists() else {}
    first, start = (int(columns["document"].max()) + 1 if columns else 0), time.perf_counter()
    for number, (ids, size) in enumerate(documents(model, texts, data)):
        if number < first:
            continue
        part = _columns(model, ids)
        count = len(part["rank"])
        part |= {"document": torch.full((count,), number), "bytes": torch.full((count,), size / count)}
        columns = {key: torch.cat([columns[key], value]) if columns else value for key, value in part.items()}
        with replacing(path) as temporary:
            torch.save(columns, temporary)
        print(f"{model.name}, {name}: document {number + 1}, {time.perf_counter() - start:.0f} s", flush=True)
    return columns


def documents(model: Model, texts: TextSet, data: Path) -> Iterator[tuple[list[int], int]]:
    """The tokens of each document, and the bytes of those that are scored, until there are enough tokens."""
    taken = 0
    for text in texts.documents(data):
        if taken >= texts.tokens * model.share:
            return
        ids = model.tokenizer(text, add_special_tokens=False)["input_ids"][:LONGEST]
        if len(ids) >= SHORTEST:
            scored = ids if model.before else ids[1:]
            taken += len(scored)
            yield [*model.before, *ids], len(model.tokenizer.decode(scored).encode())


def _columns(model: Model, ids: list[int]) -> Columns:
    """The numbers of each scored token of a document."""
    parts = []
    with causal_model(model.model) as cached:
        windows = check_windows(None, None, model.model.config)
        for rows, token in text_logits(model.model, [ids], *windows, cached=cached):
            numbers = token_numbers(rows, token, rivals=1)
            columns = {name: getattr(numbers, name).double() for name in TOKEN_COLUMNS}
            columns |= unsaturated_scores(rows, ["energy", "logit_gap"])
            coins = bag_of_coins(rows.double())
            log_p = log_probabilities(rows.double(), coins.odds)
            columns["forced_gap"] = forced_gap(coins.odds, rows.shape[-1])
            columns["free_gap"] = coins.free_gap
            columns["right"] = (numbers.rivals[:, 0] == token).double()
            columns["squares"] = (2 * log_p).exp().sum(-1)
            parts.append(columns)
    return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def log_probabilities(rows: Tensor, odds: Tensor) -> Tensor:
    """`log_softmax` from the odds: the largest, -log(1 + odds), keeps its digits where it is near 0."""
    return rows - rows.amax(-1, keepdim=True) - torch.log1p(odds).unsqueeze(-1)
