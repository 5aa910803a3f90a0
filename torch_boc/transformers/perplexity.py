"""How well a causal language model predicts texts: perplexity, and the numbers of the probe."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .._optional import require
from ..metrics import BoCMetric
from .teacher_forcing import causal_model, check_windows, text_logits, vocabulary

# The default context for texts of any length. The cache of a longer one can take more memory than the model does.
USUAL_CONTEXT = 4096
# A text, or the pieces of a text that is too long to be held at once.
Document = str | Iterable[str]
Texts = str | Iterable[Document] | Mapping[str, str | Iterable[Document]]
# The name of a text that is given without one, and of the row of all texts together.
SINGLE, ALL = "text", "all"


class TextNumbers(dict[str, dict[str, float]]):
    """The numbers of each text by its name, and those of all texts together under "all" if there are several.

    They are those of `torch_boc.functional.boc_summary` for the predictions of the next token, and

    - `tokens`, how many predictions were scored; `bytes`, the size of what was scored, in UTF-8;
    - `perplexity`, the exponential of `nll`, and `bits_per_byte`, which compares models of different tokenizers; it is
      NaN if predictions are invalid;
    - `lost_coins`, how many of its coin flips the likeliest token is expected to lose, on average.
    """

    def to_frame(self) -> Any:
        """A pandas table with one row per text."""
        pandas = require("pandas", purpose="tables need")
        return pandas.DataFrame(list(self.values()), index=pandas.Index(list(self), name="text"))


def evaluate_text(
    model: Any,
    tokenizer: Any,
    texts: Texts,
    *,
    context: int | None = None,
    stride: int | None = None,
) -> TextNumbers:
    """How well a causal language model predicts given texts, token by token, and how well its confidence is calibrated.

    Everything is added up on the model's device while the texts go through the model once, in slices of at most about
    2^24 logits. So memory grows neither with the length nor with the number of the texts nor, beyond a slice, with the
    vocabulary. It grows with the context, because a model keeps keys and values of each token that it reads together.

    Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer. A first token that it puts before a text (bos) stands before each text, whose own
            first token is then predicted too. If a text is longer than the context, it stands at the head of each
            window, because models that were trained with it predict badly without it.
        texts: a text, a list of texts, or a mapping from names to either, which gives one row per name. Among
            several, no text has the name "all", which is that of the row of all together. A text may also be an
            iterable of its pieces. Pieces are tokenised one by one, and no token crosses the end of a piece; the
            model reads on across it.
        context: the most tokens that the model reads together; by default what its config states, but at most 4,096.
            A longer context takes more memory.
        stride: how far a window is from the one before, by default half of the context; see `score_tokens`.

    Returns:
        The numbers, as a dict by the name of the text, which is "text" if there is none. Predictions with NaN or +inf
        are left out, with a warning.
    """
    classes, before = vocabulary(model), first_tokens(tokenizer)
    context, stride = check_windows(context, stride, model.config, before=len(before), most=USUAL_CONTEXT)
    named = dict(texts) if isinstance(texts, Mapping) else {SINGLE: texts}
    if not named or (len(named) > 1 and ALL in named):
        got = ", ".join(named) or "an empty mapping"
        raise ValueError(f"expected at least one text, and among several none called {ALL!r}, got {got}")
    listed = {name: _listed(x, name) for name, x in named.items()}  # or an error before the work begins
    numbers, whole = TextNumbers(), _Sum(classes)
    with causal_model(model) as cached:
        for name, documents in listed.items():
            part = _Sum(classes)
            for document in documents:
                tokens = part.tokenised(_listed(document, name), tokenizer, name, predicted=bool(before))
                for logits, target in text_logits(model, tokens, context, stride, before, cached=cached):
                    part.metric.to(logits.device)
                    part.metric.update(logits, target)
            whole.metric.to(part.metric.device).merge_state(part.metric)
            whole.bytes += part.bytes
            numbers[name] = part.numbers(name)
    whole.metric.nan_strategy = "warn"
    total = whole.numbers(ALL)
    return numbers if len(numbers) == 1 else TextNumbers({**numbers, ALL: total})


class _Sum:
    """What texts add up to; `bytes` are those of the tokens that were scored, in UTF-8."""

    def __init__(self, num_classes: int) -> None:
        self.metric = BoCMetric(num_classes, nan_strategy="ignore", sync_on_compute=False)
        self.bytes = 0

    def tokenised(self, pieces: Iterable[str], tokenizer: Any, name: str, *, predicted: bool) -> Iterator[list[int]]:
        """The tokens of a document, piece by piece; `predicted` tells whether its first token is."""
        for piece in pieces:
            if not isinstance(piece, str):
                raise TypeError(f"{name}: expected the pieces of a text as str, got {type(piece).__name__}")
            ids = tokenizer(piece, add_special_tokens=False, verbose=False)["input_ids"]
            self.bytes += len(piece.encode())
            if not predicted and ids:
                self.bytes -= len(tokenizer.decode(ids[:1]).encode())
                predicted = True
            yield ids

    def numbers(self, name: str) -> dict[str, float]:
        """The numbers of `TextNumbers`."""
        if not self.metric.update_called:
            raise ValueError(f"{name}: expected a text of at least two tokens, got an empty text or one token")
        summary = {key: float(value) for key, value in self.metric.compute().items()}
        tokens, nll, classes = int(summary.pop("samples")), summary["nll"], self.metric.num_classes or 0
        scored = self.bytes and not summary["invalid"]
        return {
            "tokens": tokens,
            "bytes": self.bytes,
            "perplexity": math.exp(min(nll, 700.0)),
            "bits_per_byte": nll / math.log(2) * tokens / self.bytes if scored else math.nan,
            "lost_coins": (1.0 - summary["dominance"]) * (classes - 1),
            **summary,
        }


def _listed(texts: Any, name: str) -> Iterable[Any]:
    """Several texts or the pieces of one, or an error for what is neither; a str is one of one."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
        remedy = "; read it first, with path.read_text()" if isinstance(texts, os.PathLike) else ""
        raise TypeError(f"{name}: expected a text as str, or an iterable of texts, got {type(texts).__name__}{remedy}")
    return texts


def first_tokens(tokenizer: Any) -> list[int]:
    """The tokens that the tokenizer puts before each text."""
    plain, whole = (tokenizer("a", add_special_tokens=x)["input_ids"] for x in (False, True))
    places = range(len(whole) - len(plain) + 1)
    return next((list(whole[:i]) for i in places if whole[i : i + len(plain)] == plain), [])
