"""Rows that two sets have in common: counted exactly, found in any format, and told from chance."""

import pytest
import torch

from tests.calibration.cases import drawn_split
from torch_boc.calibration import OverlapWarning, overlap_test

SAMPLES = 2000


def normal(samples, classes=10, *, seed=0, scale=3.0):
    return scale * torch.randn(samples, classes, generator=torch.Generator().manual_seed(seed))


def shuffled(x, seed=5):
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))]


def some_shared(share, classes=10):
    """Two sets, of which the second has that share of the first, in another order."""
    ours, theirs = normal(SAMPLES, classes), normal(SAMPLES, classes, seed=1)
    return ours, shuffled(torch.cat([shuffled(ours)[: int(share * SAMPLES)], theirs[int(share * SAMPLES) :]]))


@pytest.mark.parametrize("classes", [2, 3, 10, 300])
def test_a_set_given_twice_is_shared_whole(classes):
    ours = normal(SAMPLES, classes)
    assert overlap_test(ours, ours.clone()) == (SAMPLES, SAMPLES, True)
    assert overlap_test(ours, shuffled(ours)) == (SAMPLES, SAMPLES, True)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
@pytest.mark.parametrize("classes", [2, 10])
def test_a_part_is_counted_in_any_order_and_from_either_side(share, classes):
    ours, theirs = some_shared(share, classes)
    expected = (share * SAMPLES, share * SAMPLES, True)
    assert overlap_test(ours, theirs) == expected
    assert overlap_test(theirs, ours) == expected


@pytest.mark.parametrize("classes", [2, 10, 300])
def test_sets_with_nothing_in_common(classes):
    assert overlap_test(*some_shared(0, classes)) == (0, 0, False)


FORMS = {
    "float16": torch.Tensor.half,
    "bfloat16": torch.Tensor.bfloat16,
    "float64": torch.Tensor.double,
    "text of float32": lambda x: torch.tensor([[float(f"{v:.9g}") for v in row] for row in x.tolist()]).double(),
    "three decimals": lambda x: (x * 1000).round() / 1000,
    "log-probabilities": lambda x: x.log_softmax(1),
    "computed twice": lambda x: x * (1 + 1e-5 * normal(*x.shape, seed=9, scale=1.0)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("classes", [10, 300])
def test_the_same_rows_in_another_form(form, classes):
    ours, theirs = some_shared(0.05, classes)
    for pair in ((ours, FORMS[form](theirs)), (FORMS[form](ours), theirs)):
        found = overlap_test(*pair)
        assert found.suspicious
        assert 0.97 * 100 <= found.shared <= 100
        assert found.exact == (100 if "float64" in form or "text" in form else 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_coarse_formats_of_few_classes(dtype):
    ours, theirs = some_shared(0.05, 3)
    found = overlap_test(ours.to(dtype).float(), theirs)  # known by its values, not by its type
    assert found.suspicious
    assert found.shared == pytest.approx(100, abs=2)


def test_equal_rows_with_other_targets_are_other_samples():
    logits, target = drawn_split(SAMPLES)
    assert overlap_test(logits, logits, target, target) == (SAMPLES, SAMPLES, True)
    assert overlap_test(logits, logits, target, (target + 1) % 5) == (0, 0, False)
    assert overlap_test(logits, logits, target).shared == SAMPLES  # where one set has none, nothing can be compared


def test_masked_classes_and_zeros_of_either_sign():
    ours = normal(SAMPLES)
    hidden = normal(SAMPLES, seed=3) > 3
    ours = ours.masked_fill(hidden, -torch.inf)
    ours[:, 0] = 0.0
    theirs = ours.clone()
    theirs[:, 0] = -0.0
    assert overlap_test(ours, theirs) == (SAMPLES, SAMPLES, True)
    assert overlap_test(ours, theirs.half()).shared >= 0.97 * SAMPLES


def coarse(samples, seed, classes=3):
    return normal(samples, classes, seed=seed).round()


COINCIDING = {
    "whole numbers": lambda n, seed: coarse(n, seed),
    "two classes in bfloat16": lambda n, seed: normal(n, 2, seed=seed).bfloat16(),
    "saturated": lambda n, seed: (9 * normal(n, 4, seed=seed)).clamp(-5, 5),
    "sure": lambda n, seed: 9 * torch.eye(6)[normal(n, 6, seed=seed).argmax(1)],
    "all the same": lambda n, seed: torch.zeros(n, 5),
    "of another spread": lambda n, seed: normal(n, 3, seed=seed, scale=1.0 + 3 * (seed % 2)).round(),
}


@pytest.mark.parametrize("kind", COINCIDING)
@pytest.mark.parametrize(("samples", "others"), [(1000, 1000), (2000, 150), (150, 2000)])
def test_rows_that_coincide_by_chance_are_no_overlap(kind, samples, others):
    draw = COINCIDING[kind]
    results = [overlap_test(draw(samples, 2 * i), draw(others, 2 * i + 1)) for i in range(10)]
    assert not any(found.suspicious for found in results)
    if kind != "two classes in bfloat16":
        assert all(found.shared for found in results)


def test_duplicates_in_the_data_are_no_overlap():
    """One sample in ten stands twice in the data, which are then split at random."""
    for seed in range(10):
        data = normal(2000, seed=seed)
        assert not overlap_test(*shuffled(torch.cat([data, data[:200]]), seed).split(1100)).suspicious


@pytest.mark.parametrize("draw", [COINCIDING["saturated"], lambda n, seed: coarse(n, seed, 4)])
def test_an_overlap_is_found_among_coincidences(draw):
    ours, theirs = draw(SAMPLES, 0), draw(SAMPLES, 1)
    by_chance = overlap_test(ours, theirs)
    assert not by_chance.suspicious
    theirs[:400] = ours[:400]
    found = overlap_test(ours, theirs)
    assert found.suspicious
    assert found.shared > by_chance.shared


def test_a_set_whose_every_row_stands_twice_is_found_as_well():
    ours = normal(SAMPLES).repeat(2, 1)
    assert overlap_test(ours, shuffled(ours)).suspicious


def test_counts_are_those_of_a_set_of_python():
    ours, theirs = coarse(500, 0), coarse(400, 1)
    known = set(map(tuple, theirs.tolist()))
    expected = sum(tuple(row) in known for row in ours.tolist())
    assert overlap_test(ours, theirs)[:2] == (expected, expected)


def test_a_few_samples_are_found_if_they_are_all_of_both_sets():
    ours = normal(5)
    assert overlap_test(ours, ours.clone()).suspicious
    assert not overlap_test(normal(5, seed=1), ours).suspicious
    two = torch.eye(2)  # a coin would do that
    assert not overlap_test(two, two).suspicious


def test_blocks_do_not_change_anything(monkeypatch):
    ours, theirs = some_shared(0.05)
    theirs = theirs.half()
    expected = overlap_test(ours, theirs)
    monkeypatch.setattr("torch_boc.calibration.overlap.BLOCK_ELEMENTS", 64)
    assert overlap_test(ours, theirs) == expected


def test_the_warning_is_a_user_warning():
    assert issubclass(OverlapWarning, UserWarning)
