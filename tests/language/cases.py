"""Records and traces for tests."""

import math

import torch

from torch_boc.functional.tokens import TOKEN_COLUMNS, token_numbers
from torch_boc.language import TokenRecord, Trace

WORDS = ["The", " sky", " is", " blue", ".", "\n", " </script><b>", " naïve", " & \"'", "日本"]


def make_record(length=40, *, classes=50, prompt=0, seed=0, scale=3.0, rivals=5, finish="eos", bare=False, **options):
    """A record of random logits; the first token of the prompt has no numbers, and with `bare` none has any."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(length, classes, generator=generator, dtype=torch.float64) * scale
    tokens = torch.randint(classes, (length,), generator=generator)
    found = token_numbers(logits, tokens, rivals=rivals)._asdict()
    numbers = {name: found[name].double() for name in TOKEN_COLUMNS}
    if prompt:
        unscored = torch.arange(prompt if bare else 1)
        numbers = {name: column.index_fill(0, unscored, math.nan) for name, column in numbers.items()}
    chances = found["rival_log_probabilities"]
    return TokenRecord(tokens, numbers, found["rivals"], chances, prompt, finish=finish, **options)


def make_trace(*lengths, prompt=0, **options):
    """A trace with a sequence for each length, and words as texts."""
    records = []
    for seed, length in enumerate(lengths):
        texts = [WORDS[i % len(WORDS)] for i in range(length)]
        rivals = [[WORDS[(i + k) % len(WORDS)] for k in range(5)] for i in range(length)]
        records.append(make_record(length, seed=seed, prompt=prompt, texts=texts, rival_texts=rivals, **options))
    return Trace(records, num_classes=50)
