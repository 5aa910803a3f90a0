"""The GPU gives what torch's operations give in float64 on the CPU, and the same bits each time."""

import pytest
import torch

from tests.gpu.batches import make_batch
from torch_boc import BoCMetric, CoherenceGap, kernels
from torch_boc.functional import bag_of_coins, sample_columns

pytestmark = pytest.mark.gpu

CASES = [  # rows, classes, dtype and scale: small logits are flat, large ones sharp
    (64, 2, torch.float32, 3.0),
    (64, 3, torch.float32, 3.0),
    (65, 10, torch.float32, 12.0),
    (64, 1_000, torch.float32, 3.0),
    (32, 1_000, torch.float32, 0.01),
    (64, 1_000, torch.bfloat16, 3.0),
    (16, 1_025, torch.float16, 3.0),
    (16, 1_000, torch.float64, 3.0),
    (8, 50_257, torch.float32, 3.0),
    (8, 50_257, torch.bfloat16, 3.0),
    (300, 128_256, torch.bfloat16, 3.0),
]
# Relative errors. Sums of other dtypes than float64 are taken in float32; a gradient has the dtype of the logits.
GRADIENTS = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
FIELDS = ("odds", "loss", "gap", "free_gap", "concentration")
MEANS = ("samples", "invalid", "confidence", "dominance", "gap", "free_gap", "concentration", "accuracy", "nll")


@pytest.mark.parametrize(("rows", "classes", "dtype", "scale"), CASES)
def test_every_result_is_that_of_the_cpu(device, rows, classes, dtype, scale):
    logits, target = make_batch(rows, classes, dtype=dtype, scale=scale)
    if classes > 3:
        logits[0, 1] = torch.nan
        logits[1, 2] = torch.inf
        logits[2, 1::2] = -torch.inf  # not the target, whose loss would be infinite
        logits[3, [0, -1]] = 20.0
    with kernels.use("torch"):
        expected = compute(logits.double(), target)
    with kernels.use("triton"):
        actual = compute(logits.to(device), target.to(device))
    limit = 1e-11 if dtype == torch.float64 else 1e-5
    for name, value in expected.items():
        value, found = value.detach().double(), actual[name].detach().cpu().double()
        # An error is relative to the number itself where it may be tiny, to the largest of all, or at least to 1.
        size = value.abs().clamp_min(1e-300 if name in ("odds", "loss", "gap") else 1.0)
        if name in ("gradient", "free_gap"):
            size = value.abs().nan_to_num(0).max().clamp_min(1e-300)
        atol = max(limit, GRADIENTS.get(dtype, 0.0)) if name == "gradient" else limit
        torch.testing.assert_close(found / size, value / size, rtol=0, atol=atol, equal_nan=True)


def compute(logits, target):
    """Coins, columns and means, and the gradient of rows that have one."""
    metric = BoCMetric(logits.shape[1], nan_strategy="ignore").to(logits.device)
    metric.update(logits, target)
    summary, coins, leaf = metric.compute(), bag_of_coins(logits), logits[4:].detach().requires_grad_()
    weighted = zip((1.0, -2.0, 0.5, 1.5, -1.0), FIELDS, strict=True)
    some = bag_of_coins(leaf)
    (gradient,) = torch.autograd.grad(sum(weight * getattr(some, name).sum() for weight, name in weighted), leaf)
    columns = sample_columns(logits, columns=["prediction", "confidence", "dominance", "energy", "logit_gap"])
    means = torch.stack([summary[name] for name in MEANS])
    return {**columns, **{name: getattr(coins, name) for name in FIELDS}, "means": means, "gradient": gradient}


def test_fifty_repeats_give_the_same_bits(device):
    logits, target = make_batch(8_192, 1_000, device=device)

    def bits():
        leaf = logits.detach().requires_grad_()
        coins = bag_of_coins(leaf)
        metrics = [BoCMetric().to(device), CoherenceGap().to(device)]
        for metric in metrics:
            metric.update(logits, target)
        tensors = [
            *(x.detach() for x in coins),
            *torch.autograd.grad((coins.gap + coins.concentration).sum(), leaf),
            *sample_columns(logits).values(),
            *(state for metric in metrics for state in metric.metric_state.values()),
        ]
        return [x.contiguous().reshape(-1).view(torch.uint8) for x in tensors]

    first = bits()
    for _ in range(49):
        assert all(torch.equal(one, other) for one, other in zip(first, bits(), strict=True))
