"""One window of text through a causal model, in pieces whose logits fit into memory."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .windows import Window, piece_length

# Places whose logits nobody asks for are passed in pieces of at least this many tokens.
SILENT_PIECE = 512

Piece = tuple[int, Tensor]


class WindowReader:
    """Reads windows of a batch of texts.

    Args:
        model: a causal language model of transformers.
        tokens: (B, T), texts without padding before them.
    """

    def __init__(self, model: Any, tokens: Tensor) -> None:
        known = inspect.signature(model.forward).parameters
        self.model, self.tokens = model, tokens
        self.has_cache, self.keeps = "past_key_values" in known, "logits_to_keep" in known
        self.length = piece_length(len(tokens), vocabulary(model.config))

    def read(self, window: Window) -> Iterator[Piece]:
        """The place of the first target of each piece, and the logits (B, t, V) that predict it and those after it."""
        if not self.has_cache:
            yield from self._read_again(window)
            return
        cache = None
        # The token before a place predicts it, so that the last token of a window predicts nothing.
        for start, end, wanted in self._pieces(window.start, window.first - 1, window.end - 1):
            keep = {"logits_to_keep": 1} if self.keeps and not wanted else {}
            found = self._forward(start, end, past_key_values=cache, use_cache=True, **keep)
            cache = getattr(found, "past_key_values", None)
            if cache is None:  # seen at the first piece of the first window
                self.has_cache = False
                yield from self._read_again(window)
                return
            if wanted:
                yield start + 1, found.logits

    def _pieces(self, start: int, first: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """The pieces before `first`, whose logits nobody wants, and then those from there on."""
        silent = max(self.length, SILENT_PIECE // len(self.tokens)) if self.keeps else self.length
        yield from ((at, min(at + silent, first), False) for at in range(start, first, silent))
        yield from ((at, min(at + self.length, end), True) for at in range(first, end, self.length))

    def _read_again(self, window: Window) -> Iterator[Piece]:
        """Without a cache: the tokens from the start of the window on, again for each piece."""
        first, end = window.first - 1, window.end - 1
        if self.keeps:
            for at in range(first, end, self.length):
                until = min(at + self.length, end)
                yield at + 1, self._forward(window.start, until, logits_to_keep=until - at).logits
            return
        logits = self._forward(window.start, end).logits[:, first - window.start :]
        for at, piece in zip(range(first, end, self.length), logits.split(self.length, 1), strict=True):
            yield at + 1, piece

    def _forward(self, start: int, end: int, **options: Any) -> Any:
        with torch.no_grad():
            return self.model(input_ids=self.tokens[:, start:end], return_dict=True, **options)


def vocabulary(config: Any) -> int:
    """The number of tokens that a model chooses from."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    size = getattr(text, "vocab_size", None)
    if not isinstance(size, int):
        raise ValueError(f"expected a language model, whose config has vocab_size, got {type(config).__name__}")
    return size


def check_model(model: Any) -> None:
    """Raise if something is no language model, or has an encoder."""
    if not hasattr(model, "config") or not callable(getattr(model, "forward", None)):
        raise TypeError(f"expected a causal language model of transformers, got {type(model).__name__}")
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"expected a causal language model, got {type(model).__name__}, which has an encoder as well")


def check_causal(model: Any) -> None:
    """Raise if what a model predicts after a token depends on the tokens that come later."""
    tokens = torch.tensor([[0, 1], [0, 2]], device=model.device)
    with torch.no_grad():
        found = getattr(model(input_ids=tokens, return_dict=True), "logits", None)
    if found is None or found.ndim != 3:
        raise ValueError(f"expected a causal language model, got {type(model).__name__}, which has no logits of tokens")
    one, other = found[:, 0].float().unbind()
    finite = one[one.isfinite()]
    if bool((one.isnan() | one.isposinf()).any()) or not finite.numel():
        raise ValueError(
            f"expected logits that are numbers, got NaN or infinity from {type(model).__name__}; look at its weights, "
            "or load them in a dtype with a larger range, such as bfloat16 or float32"
        )
    near = 1e-4 if found.dtype in (torch.float32, torch.float64) else 2e-2
    if not torch.allclose(one, other, rtol=near, atol=near * float(finite.abs().amax())):
        raise ValueError(
            f"expected a causal language model, got {type(model).__name__}, whose predictions change with later tokens"
        )


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """The model without dropout, and afterwards as it was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
