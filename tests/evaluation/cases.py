"""Sets of logits for the tests of evaluations."""

import torch

from torch_boc.data.logit_set import LogitSet
from torch_boc.report.results import frame


def make_set(name, samples, seed, scale=2.0, targets=True, classes=5):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(classes, (samples,), generator=generator)
    logits = torch.randn(samples, classes, generator=generator) + scale * torch.eye(classes)[target]
    return LogitSet(logits, target if targets else None, name=name)


def rows_of(table, rows):
    """Rows as named tuples, with the columns of their table."""
    return list(frame(table, rows).itertuples(index=False))
