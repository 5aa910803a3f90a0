"""Where a generated sequence ends, and why."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Endings(NamedTuple):
    """What ends sequences.

    Attributes:
        eos: the tokens that end a sequence.
        pad: the token that fills the rows of sequences that have ended; None if it is not known.
        limit: the most new tokens of a sequence; None if it is not known.
    """

    eos: frozenset[int]
    pad: int | None
    limit: int | None = None

    def of(self, tokens: Sequence[int], stopped: Sequence[bool]) -> tuple[int, str]:
        """How many of the tokens were emitted, and why the sequence ended; "" if something else ended it.

        Args:
            tokens: what was generated, with the padding after the end.
            stopped: whether the rule had stopped the sequence at each token.

        >>> Endings(frozenset([2]), 0).of([5, 7, 2, 0, 0], [False] * 5)
        (3, 'eos')
        """
        for place, token in enumerate(tokens):
            if token in self.eos:
                return place + 1, "eos"
            if stopped[place]:
                return place + 1, "stop"
        length = len(tokens)
        while length and tokens[length - 1] == self.pad:
            length -= 1
        return length, "length" if length == self.limit else ""


def find_endings(eos: Any, pad: Any, sources: Iterable[Any], start: int = 0) -> Endings:
    """The endings as given, or from the first source that states them: mappings, configs or tokenizers.

    Args:
        eos: the tokens that end a sequence, or None.
        pad: the padding token, or None.
        sources: where to look for what is not given, and for the limit.
        start: the length of the prompt, which `max_length` counts too.
    """
    sources = list(sources)
    eos = stated("eos_token_id", sources) if eos is None else eos
    pad = stated("pad_token_id", sources) if pad is None else pad
    found = frozenset(_integers("eos_token_id", eos))
    pads = _integers("pad_token_id", pad)
    if len(pads) > 1:
        raise ValueError(f"expected pad_token_id as one integer, got {pad!r}")
    return Endings(found, pads[0] if pads else None, _limit(sources, start))


def _limit(sources: Iterable[Any], start: int) -> int | None:
    """The most new tokens; as in `generate`, `max_new_tokens` of any source counts before `max_length` of any."""
    new, whole = (stated(name, sources) for name in ("max_new_tokens", "max_length"))
    limit = whole - start if new is None and whole is not None else new
    return None if limit is None else int(limit)


def stated(name: str, sources: Iterable[Any]) -> Any:
    """The value of this name in the first source that states it.

    A mapping holds the arguments of a call, so None in it is a statement too; in other sources None states nothing.
    """
    for source in sources:
        if isinstance(source, Mapping):
            if name in source:
                return source[name]
        elif (value := getattr(source, name, None)) is not None:
            return value
    return None


def _integers(name: str, value: Any) -> list[int]:
    """None, an integer, or several of them, as a list."""
    if isinstance(value, Tensor):
        value = value.tolist()
    values = [] if value is None else list(value) if isinstance(value, Iterable) else [value]
    if not all(type(x) is int for x in values):
        raise TypeError(f"expected {name} as an integer or a list of integers, got {value!r}")
    return values
