"""Teacher-forced passes: what a causal language model predicts at each position of a given text, in bounded memory."""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..data.extract import describe
from ..functional.tokens import RIVALS, TOKEN_COLUMNS, token_numbers
from ..language.record import TokenRecord

# At most this many logits exist at a time: 64 MB in float32.
MOST_LOGITS = 2**24
# Places whose logits nobody asks for are passed in pieces of at least this many tokens.
SILENT_PIECE = 512
# The context of a model whose config does not state one, and the names under which configs do.
UNSTATED_CONTEXT = 1024
CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length")


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

    The texts go through the model one by one, in evaluation mode, and at most about 2^24 logits exist at a time: a text
    is read in pieces, and a cache carries the earlier tokens. A model without such a cache, or whose cache does not
    carry all of them (some with a recurrent state), reads a window again for each piece of it, if it can leave out the
    logits of earlier places (`logits_to_keep`), and otherwise makes the logits of a whole window at once. What is kept
    of a token is a fixed number of floats, whatever the vocabulary is.

    A text that is longer than the context is read in windows, and each token is scored once. The windows hold the ids
    unchanged: a first token such as bos is in the first window only, and is not repeated at the head of the others,
    as `evaluate_text` does it.

    Args:
        model: a causal language model of transformers, or a module with the same forward and a `config`. A short
            forward checks that later tokens do not change what it predicts, and whether its cache carries the earlier
            ones.
        input_ids: (B, T) in int64.
        attention_mask: (B, T), 0 for tokens that are padding, at either side. They are not part of the records.
        rivals: how many of the likeliest tokens to keep at each position.
        context: the most tokens that the model reads together; by default what its config states, or 1024.
        stride: how far a window is from the one before; by default half of the context: each token is predicted
            from at least half a context if the text has this many tokens before it. A smaller stride takes more time.

    Returns:
        A record for each text. The numbers of its first token are NaN, because nothing precedes it.
    """
    plain = isinstance(input_ids, Tensor) and not input_ids.is_floating_point()
    if not plain or input_ids.ndim != 2 or input_ids.numel() == 0:
        raise ValueError(f"expected input_ids as integers of shape (B, T), got {describe(input_ids)}; use ids[None]")
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.to(input_ids.device)
    if mask.shape != input_ids.shape or not bool(mask.any(1).all()):
        got = f"{describe(mask)} with {int((~mask.any(-1)).sum())} rows of padding only"
        raise ValueError(f"expected attention_mask of shape {tuple(input_ids.shape)}, a token in each row, got {got}")
    records = []
    with causal_model(model) as cached:
        windows = check_windows(context, stride, model.config)
        for tokens in (row[kept != 0].cpu() for row, kept in zip(input_ids, mask, strict=True)):
            missing = torch.full((1,), torch.nan, dtype=torch.float64)
            lists = torch.full((1, min(rivals, vocabulary(model))), -1)
            parts = [[missing] * len(TOKEN_COLUMNS) + [lists, lists * torch.nan]]
            for logits, target in text_logits(model, [tokens.tolist()], *windows, cached=cached):
                parts.append([x.cpu() for x in token_numbers(logits, target, rivals=rivals)])
            *columns, others, chances = map(torch.cat, zip(*parts, strict=True))
            numbers = {name: x.double() for name, x in zip(TOKEN_COLUMNS, columns, strict=True)}
            records.append(TokenRecord(tokens, numbers, others, chances.double()))
    return records


def text_logits(
    model: Any, pieces: Iterable[Sequence[int]], context: int, stride: int, before: Sequence[int] = (), *, cached: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """The logits (t, V) of a few places of a text at a time, in order, and the tokens (t,) that stand there.

    Args:
        model: as `causal_model` leaves it.
        pieces: the tokens of the text, in one piece or several.
        context: as `check_windows` returns it, as the stride.
        stride: see there.
        before: the tokens at the head of each window.
        cached: what `causal_model` yields.
    """
    for window, first in token_windows(pieces, context, stride, before):
        tokens = torch.tensor([window], device=model.device)
        for start, logits in window_logits(model, tokens, first, cached=cached):
            yield logits[0], tokens[0, start : start + logits.shape[1]].to(logits.device)


def token_windows(
    pieces: Iterable[Sequence[int]], context: int, stride: int, before: Sequence[int] = ()
) -> Iterator[tuple[list[int], int]]:
    """The tokens of each window of a stream, and which of them is the first to be scored.

    A window has `context` tokens, and is `stride` tokens after the one before. Every token but the first is scored
    once: the first window scores all of its tokens, and a later one scores those that are new. So each token is
    predicted from at least `context - stride` earlier tokens, or from all that there are. Each window begins with the
    tokens `before`, which are not scored. They count as part of the context.

    >>> list(token_windows([[1, 2, 3], [4], [5, 6, 7]], context=4, stride=2))
    [([1, 2, 3, 4], 1), ([3, 4, 5, 6], 2), ([5, 6, 7], 2)]
    >>> list(token_windows([[1, 2, 3], [4], [5, 6, 7]], context=4, stride=2, before=[0]))
    [([0, 1, 2, 3], 1), ([0, 3, 4, 5], 2), ([0, 5, 6, 7], 2)]
    """
    tokens: list[int] = []
    first, room = max(1, len(before)), context - len(before)
    for piece in pieces:
        tokens += piece
        start = 0
        while len(tokens) - start > room:
            yield [*before, *tokens[start : start + room]], first
            start, first = start + stride, context - stride
        del tokens[:start]
    if len(before) + len(tokens) > first:
        yield [*before, *tokens], first


def stated_context(config: Any) -> int | None:
    """The context that the config of a model states, or None."""
    stated = (getattr(config.get_text_config(), name, None) for name in CONTEXT_NAMES)
    return next((value for value in stated if isinstance(value, int) and value > 1), None)


def check_windows(
    context: int | None, stride: int | None, config: Any, *, before: int = 0, most: int | None = None
) -> tuple[int, int]:
    """The context and the stride, with the defaults for None, or an error if they cannot be used.

    Each window begins with `before` tokens that are not of the text. The default context is at most `most`.
    """
    stated = stated_context(config)
    if context is None:
        context = min(stated or UNSTATED_CONTEXT, most or stated or UNSTATED_CONTEXT)
    least = 1 + max(1, before)
    if context < least or (stated is not None and context > stated):
        limit = "" if stated is None else f" and at most {stated}, the context of the model"
        raise ValueError(f"expected a context of at least {least} tokens{limit}, got {context}")
    largest = 1 + context - least
    stride = min(context // 2, largest) if stride is None else stride
    if not 1 <= stride <= largest:
        raise ValueError(f"expected a stride from 1 to {largest}, below the context of {context}, got {stride}")
    return context, stride


def window_logits(model: Any, tokens: Tensor, first: int, *, cached: bool) -> Iterator[tuple[int, Tensor]]:
    """What a causal model predicts for the tokens of a window from `first` on, in pieces that fit into memory.

    Args:
        model: as `causal_model` leaves it.
        tokens: (1, n), the window.
        first: the first place that is scored, at least 1.
        cached: whether the model's cache carries the tokens from piece to piece.

    Yields:
        The first place of each piece, and the logits (1, t, V) that predict it and those after it.
    """
    keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
    length = max(1, MOST_LOGITS // vocabulary(model))
    first, end = first - 1, tokens.shape[1] - 1  # the token before a place predicts it, and the last predicts nothing
    pieces = [(at, min(at + length, end)) for at in range(first, end, length)]
    if cached:
        silent = max(length, SILENT_PIECE) if keeps else length
        pieces = [(at, min(at + silent, first)) for at in range(0, first, silent)] + pieces
    elif not keeps:
        whole = _forward(model, tokens[:, :-1]).logits
    cache = None
    for at, until in pieces:
        if cached:
            keep = {"logits_to_keep": 1} if keeps and until <= first else {}
            output = _forward(model, tokens[:, at:until], past_key_values=cache, use_cache=True, **keep)
            logits, cache = output.logits, output.past_key_values
        elif keeps:
            logits = _forward(model, tokens[:, :until], logits_to_keep=until - at).logits
        else:
            logits = whole[:, at:until]
        if at >= first:
            yield at + 1, logits


def _forward(model: Any, tokens: Tensor, **options: Any) -> Any:
    with torch.no_grad():
        return model(input_ids=tokens, return_dict=True, **options)


def vocabulary(model: Any) -> int:
    """The number of tokens that a model chooses from, or an error if it is no language model."""
    size = getattr(model.config.get_text_config(), "vocab_size", None) if hasattr(model, "config") else None
    if not isinstance(size, int):
        kind = type(model).__name__
        raise TypeError(f"expected a causal language model of transformers, whose config has vocab_size, got {kind}")
    return size


@contextmanager
def causal_model(model: Any) -> Iterator[bool]:
    """The model without dropout, and afterwards as it was; or an error if it is no causal language model.

    Yields whether it has a cache that carries the earlier tokens into a piece of several tokens.
    """
    vocabulary(model)  # or an error
    name = type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"expected a causal language model, got {name}, which has an encoder as well")
    was_training = model.training
    model.eval()
    try:
        tokens = torch.tensor([[0, 1, 2, 0], [0, 1, 0, 2]], device=model.device)
        logits = getattr(_forward(model, tokens), "logits", None)
        if logits is None or logits.ndim != 3:
            raise ValueError(f"expected a causal language model, got {name}, which has no logits of tokens")
        one, other = logits.float()
        finite = one[one.isfinite()]
        if bool((one.isnan() | one.isposinf()).any()) or not finite.numel():
            remedy = "look at its weights, or load them in bfloat16 or float32"
            raise ValueError(f"expected logits that are numbers, got NaN or infinity from {name}; {remedy}")
        near = 1e-4 if logits.dtype in (torch.float32, torch.float64) else 2e-2
        alike = partial(torch.allclose, rtol=near, atol=near * float(finite.abs().amax()))
        if not alike(one[:2], other[:2]):
            raise ValueError(
                f"expected a causal language model, got {name}, whose predictions change with later tokens"
            )
        cache = None
        if "past_key_values" in inspect.signature(model.forward).parameters:
            cache = getattr(_forward(model, tokens[:1, :2], use_cache=True), "past_key_values", None)
        more = {"past_key_values": cache, "use_cache": True}
        yield cache is not None and alike(one[2:], _forward(model, tokens[:1, 2:], **more).logits[0].float())
    finally:
        model.train(was_training)
