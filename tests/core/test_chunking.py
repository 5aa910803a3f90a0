"""Piece by piece gives what the whole gives, forward and backward, whatever the shape and the strides."""

import pytest
import torch

from tests.functional.cases import random_logits
from torch_boc.core import chunking
from torch_boc.core.chunking import chunks, map_chunks
from torch_boc.functional import bag_of_coins, compute_scores

LAYOUTS = {
    "matrix": lambda: random_logits(7, 5),
    "one row": lambda: random_logits(1, 9),
    "vector": lambda: random_logits(9),
    "cube": lambda: random_logits(3, 5, 7),
    "ones in front": lambda: random_logits(1, 1, 6, 4),
    "ones between": lambda: random_logits(3, 1, 5, 4),
    "transposed": lambda: random_logits(6, 11).T,
    "strided": lambda: random_logits(12, 10)[::3, ::2],
    "expanded": lambda: random_logits(1, 6).expand(5, 6),
    "permuted": lambda: random_logits(4, 5, 6).permute(2, 0, 1),
    "many classes": lambda: random_logits(3, 2051),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


@pytest.fixture(params=[1, 40])
def small_blocks(request, monkeypatch):
    """From here on a piece has at most a few elements."""
    return lambda: monkeypatch.setattr(chunking, "CPU_ELEMENTS_PER_THREAD", request.param)


@layouts
@pytest.mark.parametrize("limit", [1, 13, 10**6])
def test_chunks_give_what_the_whole_gives(layout, limit):
    z = layout()
    function = lambda x: (x.exp().sum(-1), x.argmax(-1), 2 * x)  # noqa: E731
    for part, whole in zip(map_chunks(function, z, limit=limit), function(z), strict=True):
        torch.testing.assert_close(part, whole, rtol=1e-14, atol=0)


@layouts
@pytest.mark.parametrize("limit", [1, 13])
def test_pieces_respect_the_limit_and_keep_the_last_axis(layout, limit):
    z = layout()
    found = [piece for (piece,) in chunks(z, limit=limit)]
    assert all(x.shape[-1] == z.shape[-1] and x.numel() <= max(limit, z.shape[-1]) for x in found)
    assert torch.equal(torch.cat([x.reshape(-1, z.shape[-1]) for x in found]), z.reshape(-1, z.shape[-1]))


def probe(z, dim):
    """Values of everything, and the gradient of a random mixture of it."""
    z = z.detach().requires_grad_()
    coins = bag_of_coins(z, dim=dim)
    given = bag_of_coins(z, dim=dim, index=torch.zeros_like(coins.prediction))
    outputs = [*coins[:5], coins.gap, given.loss, *compute_scores(z, dim=dim, trials=7).values()]
    floats = torch.stack([x.double() for x in outputs if x.is_floating_point()])
    (grad,) = torch.autograd.grad(floats, z, random_logits(*floats.shape, seed=2))
    return [*outputs, grad]


@layouts
@pytest.mark.parametrize("dim", [0, -1])
def test_the_probe_is_the_same_in_blocks(layout, dim, small_blocks):
    z = layout()
    if z.shape[dim] < 2:
        dim = -1
    whole = probe(z, dim)
    small_blocks()
    for part, expected in zip(probe(z, dim), whole, strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-11, atol=1e-12)
