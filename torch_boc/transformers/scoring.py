"""Teacher-forced passes: what a causal language model predicts at each place of a given text."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional.tokens import RIVALS, TOKEN_COLUMNS, token_numbers
from ..language.record import TokenRecord
from .reading import WindowReader, check_causal, check_model, evaluation_mode, vocabulary
from .windows import check_windows, most_sequences, windows

# The target of a place that does not count.
IGNORED = -100


class LogitSlice(NamedTuple):
    """The logits of some places of a batch of texts.

    Attributes:
        start: the place of the first target in the texts.
        logits: (B, t, V), what the model predicts for the places `start` to `start + t`, from the tokens before each.
        target: (B, t) in int64, the tokens that stand there; `IGNORED` where a text has ended.
    """

    start: int
    logits: Tensor
    target: Tensor


def logit_slices(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    context: int | None = None,
    stride: int | None = None,
) -> Iterator[LogitSlice]:
    """The logits of a causal model at every place of given texts, a few places at a time, in order.

    The logits come from the model's own forward, in evaluation mode. At most about 2^24 of them exist at a time: the
    text goes through the model in pieces, and a cache of keys and values carries the earlier tokens.

    A text that is longer than the context is read in windows, see `windows`; each token is scored once. The windows
    hold the ids as they are: a first token such as bos is in the first window alone, and is not repeated at the head of
    the others, as `evaluate_text` does it. A model without such a cache
    reads a window again for each piece of it, if it can leave out the logits of earlier places (`logits_to_keep`), and
    otherwise makes the logits of a whole window at once.

    Args:
        model: a causal language model of transformers, or a module with the same forward and a `config`. A short
            forward shows whether it is causal; other models are refused.
        input_ids: (B, T).
        attention_mask: (B, T), 0 for tokens that are padding, at either side. They are taken out, so that the places of
            a text count from its own first token.
        context: the most tokens that the model reads together; by default what its config states, or 1024.
        stride: how far a window is from the one before; by default half of the context, so that each token is predicted
            from at least half a context if the text has so many tokens before it. A smaller stride takes more time.

    Yields:
        Slices. The first token of a text has no prediction, and is the target of none.
    """
    check_model(model)
    tokens, lengths = left_aligned(input_ids, attention_mask)
    context, stride = check_windows(context, stride, model.config)
    ended = torch.arange(tokens.shape[1], device=tokens.device) >= lengths.unsqueeze(1)
    target, reader = tokens.masked_fill(ended, IGNORED), WindowReader(model, tokens.to(model.device))
    with evaluation_mode(model):
        check_causal(model)
        for window in windows(tokens.shape[1], context, stride):
            for start, logits in reader.read(window):
                yield LogitSlice(start, logits, target[:, start : start + logits.shape[1]].to(logits.device))


def score_tokens(
    model: Any,
    input_ids: Tensor,
    *,
    attention_mask: Tensor | None = None,
    rivals: int = RIVALS,
    context: int | None = None,
    stride: int | None = None,
) -> list[TokenRecord]:
    """The numbers of every token of given texts, as if the model had emitted them.

    Memory grows by a fixed number of floats per token, whatever the vocabulary is.

    Args:
        model: as for `logit_slices`.
        input_ids: (B, T).
        attention_mask: (B, T), 0 for padding, which is not part of the records.
        rivals: how many of the likeliest tokens to keep at each place.
        context: as for `logit_slices`.
        stride: as for `logit_slices`.

    Returns:
        A record for each text. The numbers of its first token are NaN, because nothing precedes it.
    """
    check_model(model)
    tokens, lengths = left_aligned(input_ids, attention_mask)
    number = most_sequences(vocabulary(model.config))
    records = []
    for rows, counts in zip(tokens.split(number), lengths.split(number), strict=True):
        mask = torch.arange(rows.shape[1], device=rows.device) < counts.unsqueeze(1)
        slices = logit_slices(model, rows, mask, context=context, stride=stride)
        parts = [[x.cpu() for x in token_numbers(z, target.clamp_min(0), rivals=rivals)] for _, z, target in slices]
        whole = [torch.cat(columns, 1) for columns in zip(*parts, strict=True)]
        records += [_record(rows[i], int(n), [x[i] for x in whole], rivals) for i, n in enumerate(counts)]
    return records


def _record(tokens: Tensor, length: int, numbers: list[Tensor], rivals: int) -> TokenRecord:
    """The record of one text, whose first token has no numbers."""
    if not numbers:  # all texts have a single token
        numbers = [torch.empty(0)] * len(TOKEN_COLUMNS) + [torch.empty(0, rivals)] * 2
    *columns, others, log_probabilities = (x[: length - 1] for x in numbers)
    missing = torch.full((1,), torch.nan, dtype=torch.float64)
    own = [torch.cat([missing, x.double()]) for x in columns]
    none = torch.full((1, others.shape[-1]), -1)
    return TokenRecord(
        tokens[:length].cpu(),
        dict(zip(TOKEN_COLUMNS, own, strict=True)),
        torch.cat([none, others.long()]),
        torch.cat([none.double() * torch.nan, log_probabilities.double()]),
    )


def left_aligned(input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The texts without their padding, each from column 0 on, and their lengths (B,).

    A causal model sees nothing that comes later, so that what fills the end of shorter rows does not matter.
    """
    if not isinstance(input_ids, Tensor) or input_ids.ndim != 2 or input_ids.is_floating_point():
        got = f"shape {tuple(input_ids.shape)}" if isinstance(input_ids, Tensor) else type(input_ids).__name__
        raise ValueError(f"expected input_ids as integers of shape (B, T), got {got}; one text is ids.unsqueeze(0)")
    if input_ids.numel() == 0:
        raise ValueError(f"expected at least one token, got shape {tuple(input_ids.shape)}")
    if attention_mask is None:
        return input_ids, input_ids.new_full((len(input_ids),), input_ids.shape[1])
    if attention_mask.shape != input_ids.shape:
        shapes = f"{tuple(input_ids.shape)}, as input_ids, got {tuple(attention_mask.shape)}"
        raise ValueError(f"expected attention_mask of shape {shapes}")
    present = attention_mask.to(input_ids.device) != 0
    lengths = present.sum(1)
    if not bool((lengths > 0).all()):
        raise ValueError("expected a token in every row, got a row with padding alone; leave it out")
    order = present.long().sort(dim=1, descending=True, stable=True).indices
    return input_ids.gather(1, order)[:, : int(lengths.max())], lengths
