"""The bins of scores by their laws, and what is counted in them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.functional.cases import random_logits
from torch_boc import Acceptance, ConformalTest
from torch_boc.functional import sample_stats
from torch_boc.functional.conformal import flagged_share
from torch_boc.functional.score_bins import (
    EVERY_EXPONENT,
    EXPONENTS,
    ScoreConfig,
    bin_edges,
    bin_scores,
    num_bins,
    score_bin,
)
from torch_boc.nn.calibration_counts import update_in_turn

pytestmark = pytest.mark.filterwarnings("ignore:nothing can be flagged")


BINS = [(1, EXPONENTS), (64, EXPONENTS), (2**-7, EVERY_EXPONENT), (512, EVERY_EXPONENT), (2**14, EVERY_EXPONENT)]


@pytest.mark.parametrize("bins", BINS, ids=str)
def test_bins_keep_the_order_and_scores_lie_between_the_edges(bins):
    edges = bin_edges(*bins)  # once: there are up to 4 million

    @given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=20))
    def check(values):
        x = torch.tensor(sorted(values))
        binned = score_bin(x, *bins)
        assert (binned.diff() >= 0).all()
        assert (edges[binned] <= x).all()
        assert (edges[binned + 1] > x).all()

    check()


def test_an_edge_is_in_its_own_bin_and_zero_has_one_sign():
    edges = bin_edges(64)[:-1]
    assert torch.equal(score_bin(edges, 64), torch.arange(num_bins(64)))
    assert score_bin(torch.tensor([-0.0]), 64) == score_bin(torch.tensor([0.0]), 64)
    for bins in BINS:
        high, low, *finite = score_bin(torch.tensor([torch.inf, -torch.inf, 3e38, -3e38]), *bins)
        assert high >= finite[0] >= finite[1] >= low


@pytest.mark.parametrize("groups", [None, "prediction", "confidence"])
def test_the_share_from_counts_is_the_mean_of_the_flags(groups):
    known, new = random_logits(500, 5), random_logits(500, 5, scale=1.0, seed=1)
    held_out, tested = (ConformalTest(groups=groups).calibrate(x) for x in (known, new))
    for alpha in (0.01, 0.05, 0.5):
        found = flagged_share(held_out.counts, tested.counts, alpha)
        assert found == pytest.approx(held_out.flag(new, alpha).double().mean().item(), abs=1e-12)
    assert flagged_share(held_out.counts, tested.counts * 0, 0.1).isnan()
    assert flagged_share(held_out.counts * 0, tested.counts, 0.1) == 0, "nothing is held out, so nothing is strange"


@pytest.mark.parametrize("kind", [ConformalTest, Acceptance])
@pytest.mark.parametrize("shape", [(7, 5), (7, 2, 5), (0, 5)])
@pytest.mark.parametrize("groups", [None, "prediction"])
def test_samples_in_turn_are_those_that_each_object_is_given(kind, shape, groups):
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    target = torch.arange(rows[..., 0].numel()).reshape(shape[:-1]) % 5
    stats = sample_stats(rows, target, extras=True, ignore_index=3)
    found, want = [kind(groups=groups) for _ in range(2)], [kind(groups=groups) for _ in range(2)]
    update_in_turn(found, 1, stats)
    for part, other, start in zip(found, want, (1, 0), strict=True):
        other.update(sample_stats(rows[start::2], target[start::2], extras=True, ignore_index=3))
        assert part.calibrated == other.calibrated
        for name, count in other.named_buffers():
            assert torch.equal(getattr(part, name), count), name


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_first_group_that_a_sample_can_be_in_is_that_of_equal_logits(classes):
    scoring = ScoreConfig("energy", groups="confidence")
    lowest = bin_scores(torch.zeros(1, classes, dtype=torch.float64), scoring).group
    assert lowest.tolist() == [scoring.impossible_groups(classes)]
    assert [ScoreConfig("energy", groups="prediction").num_groups(x) for x in (None, classes)] == [0, classes]


@pytest.mark.parametrize("resolution", [1, 64, 2**14])
def test_exported_places_are_those_of_the_bits(resolution, monkeypatch):
    starts = bin_edges(resolution).float()
    bits = torch.randint(-(2**31), 2**31, (100_000,), generator=torch.Generator().manual_seed(0))
    special = [0.0, -0.0, torch.inf, -torch.inf, -1e-60, 1e-60, 1e300, -1e300, 2.0**16, -(2.0**-64)]
    below = torch.nextafter(starts, torch.tensor(-torch.inf))
    numbers = torch.cat([bits.to(torch.int32).view(torch.float32), starts, below]).double()
    numbers = torch.cat([numbers[~numbers.isnan()], torch.tensor(special, dtype=torch.float64)])
    want = score_bin(numbers, resolution)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert torch.equal(score_bin(numbers, resolution), want)
