"""Records and traces for tests."""

import math

import torch

from torch_boc.functional.tokens import TOKEN_COLUMNS, token_numbers
from torch_boc.language import TokenRecord, Trace

WORDS = ["The", " sky", " is", " blue", ".", "\n", " </script><b>", " naïve", " & \"'", "日本"]


def make_record(length=40, *, classes=50, prompt=0, seed=0, scale=3.0, rivals=5, finish="eos", bare=False):
    """A record of random logits; the first token of the prompt has no numbers, and with `detached` none has any."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(length, classes, generator=generator, dtype=torch.float64) * scale
    tokens = torch.randint(classes, (length,), generator=generator)
    found = token_numbers(logits, tokens, rivals=rivals)._asdict()
    numbers = {name: found[name].double() for name in TOKEN_COLUMNS}
    if prompt:
        unscored = torch.arange(prompt if bare else 1)
        numbers = {name: column.index_fill(0, unscored, math.nan) for name, column in numbers.items()}
    chances = found["rival_log_probabilities"]
    return TokenRecord(tokens, numbers, found["rivals"], chances, prompt, finish=finish)


class Words:
    """A tokenizer that has a word for each token, or the same ones again."""

    def __init__(self, words=WORDS):
        self.words = words

    def decode(self, tokens, **_):
        return "".join(self.words[token % len(self.words)] for token in tokens)

    def convert_ids_to_tokens(self, token):
        return self.decode([token])


def make_trace(*lengths, prompt=0, words=WORDS, **options):
    """A trace with a sequence for each length, whose tokens have a word each."""
    records = [make_record(length, seed=seed, prompt=prompt, **options) for seed, length in enumerate(lengths)]
    return Trace(records, num_classes=50, tokenizer=Words(words))
