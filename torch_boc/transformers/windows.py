"""How a long text is cut: windows of the model's context, and pieces of a window whose logits fit into memory."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

# At most this many logits exist at a time: 64 MB in float32.
MOST_LOGITS = 2**24
# The context of a model whose config does not state one.
UNSTATED_CONTEXT = 1024
# The default context for texts of any length. The cache of a longer one can take more memory than the model does.
USUAL_CONTEXT = 4096
# Texts are scored so few at a time that a piece has at least this many places.
SHORTEST_PIECE = 16
# The names under which configs state the context.
CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length")


class Window(NamedTuple):
    """Tokens `start` to `end` are read together; those from `first` on are scored. `start < first`, always."""

    start: int
    first: int
    end: int


def windows(length: int, context: int, stride: int) -> Iterator[Window]:
    """Windows of `context` tokens, each `stride` tokens after the one before. Every token but the first is scored once.

    The first window scores all of its tokens, and a later one scores those that are new. So each token is predicted
    from at least `context - stride` earlier tokens, or from all that there are.

    >>> list(windows(10, context=6, stride=3))
    [Window(start=0, first=1, end=6), Window(start=3, first=6, end=9), Window(start=6, first=9, end=10)]
    """
    for places, first in token_windows([range(length)], context, stride):
        yield Window(places[0], places[first], places[-1] + 1)


def token_windows(
    pieces: Iterable[Sequence[int]], context: int, stride: int, before: Sequence[int] = ()
) -> Iterator[tuple[list[int], int]]:
    """The tokens of each of the `windows` of a stream, and which of them is the first to be scored.

    Each window begins with the tokens `before`, which are not scored. They count as part of the context.

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


def check_windows(
    context: int | None, stride: int | None, config: Any, *, before: int = 0, most: int | None = None
) -> tuple[int, int]:
    """The context and the stride, with the defaults for None, or an error if they cannot be used.

    Each window begins with `before` tokens that are not of the text. The default context is at most `most`.
    """
    own = model_context(config)
    if context is None:
        stated = own or UNSTATED_CONTEXT
        context = stated if most is None else min(stated, most)
    least = 1 + max(1, before)
    if context < least or (own is not None and context > own):
        limit = "" if own is None else f" and at most {own}, the context of the model"
        raise ValueError(f"expected a context of at least {least} tokens{limit}, got {context}")
    largest = 1 + context - least
    stride = min(context // 2, largest) if stride is None else stride
    if not 1 <= stride <= largest:
        raise ValueError(f"expected a stride from 1 to {largest}, below the context of {context}, got {stride}")
    return context, stride


def model_context(config: Any) -> int | None:
    """How many tokens the model can read together, or None if its config does not say."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    found = (getattr(text, name, None) for name in CONTEXT_NAMES)
    return next((value for value in found if isinstance(value, int) and value > 1), None)


def piece_length(sequences: int, num_classes: int) -> int:
    """How many positions of all sequences have at most `MOST_LOGITS` logits; at least 1."""
    return max(1, MOST_LOGITS // (sequences * num_classes))


def most_sequences(num_classes: int) -> int:
    """How many sequences to score together, so that a piece of them has at least `SHORTEST_PIECE` places."""
    return max(1, MOST_LOGITS // (SHORTEST_PIECE * num_classes))
