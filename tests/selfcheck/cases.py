"""What the tests of the checks share."""

import torch

CPU = torch.device("cpu")
CARD, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)


def is_reference(x):
    """Whether a check computes its expected values: it does so in float64."""
    return x.dtype == torch.float64
