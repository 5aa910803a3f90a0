"""The numbers of one sequence of tokens, on the host, wherever they came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class TokenRecord:
    """One sequence of T tokens.

    Attributes:
        tokens: (T,) in int64, on the CPU; the prompt first, if it is part of the record.
        numbers: (T,) in float64, on the CPU, under the names of `functional.tokens.TOKEN_COLUMNS`; NaN where a token
            was not scored. A number of which only bounds are known stands under `NAME_lower` and `NAME_upper` as well.
        rivals: (T, k) in int64, the likeliest tokens at each place, the prediction first; -1 where there is none.
        rival_log_probabilities: (T, k) in float64.
        prompt_length: how many of the first tokens are the prompt.
        texts: the text of each token, if it is known without a tokenizer.
        rival_texts: the text of each rival, likewise.
        finish: why the sequence ended, such as "eos", "length" or "stop"; "" if it is not known.
        labels: what each token is called on its own, if that is not its text: it may be a part of a character.
    """

    tokens: Tensor
    numbers: Mapping[str, Tensor]
    rivals: Tensor
    rival_log_probabilities: Tensor
    prompt_length: int = 0
    texts: Sequence[str] | None = None
    rival_texts: Sequence[Sequence[str]] | None = None
    finish: str = ""
    labels: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.tokens)
