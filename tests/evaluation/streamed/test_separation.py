"""Statistics from counts: equal to those of the scores where places separate them, and within the stated error."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from torch_boc.evaluation.counted import Counted, count_below, score_at
from torch_boc.evaluation.curves import histogram_rows
from torch_boc.evaluation.separation import rank_scores, score_cells, separate
from torch_boc.evaluation.streamed.places import LOGARITHMIC, all_counts, counted_scores, place_score
from torch_boc.evaluation.streamed.separation import count_cells, separate_counts
from torch_boc.functional import gather, scores
from torch_boc.functional.evidence import EXTRAS

SMALL = st.lists(st.integers(0, 9), min_size=1, max_size=30)


def counts_of(values, places=10):
    return torch.bincount(torch.tensor(values), minlength=places)


@settings(max_examples=100, deadline=None)
@given(SMALL, SMALL)
def test_counts_of_distinct_values_give_the_exact_statistics(positive, negative):
    exact = separate(*(rank_scores(torch.tensor(x).double()) for x in (positive, negative)))
    found = separate_counts(counts_of(positive), counts_of(negative))
    for name in ("auroc", "fpr95", "aupr"):
        assert getattr(found, name) == pytest.approx(getattr(exact, name), abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(SMALL, SMALL, st.integers(1, 5))
def test_the_stated_error_holds(positive, negative, width):
    """Scores in the same place differ, and the statistics of the scores are within the errors."""
    exact = separate(*(rank_scores(torch.tensor(x).double()) for x in (positive, negative)))
    found = separate_counts(counts_of([x // width for x in positive]), counts_of([x // width for x in negative]))
    for name in ("auroc", "fpr95", "aupr"):
        assert abs(getattr(found, name) - getattr(exact, name)) <= getattr(found, f"{name}_error") + 1e-12


def test_positives_of_one_place_are_not_ties_of_each_other():
    """Average precision depends on the order of the positives, too, where negatives are above them."""
    found = separate_counts(torch.tensor([2, 0]), torch.tensor([0, 1]))
    exact = separate(rank_scores(torch.tensor([0.0, 1.0])), rank_scores(torch.tensor([2.0])))
    assert found.aupr != pytest.approx(exact.aupr)
    assert abs(found.aupr - exact.aupr) <= found.aupr_error


def test_a_rate_is_never_above_one():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        positive, negative = (torch.randint(9, (3000,), generator=generator) for _ in range(2))
        positive[0] = 10**6
        assert separate_counts(positive, negative).fpr95 <= 1.0


def test_the_worst_order_within_a_place_reaches_the_stated_error():
    found = separate_counts(torch.tensor([3]), torch.tensor([2]))
    worst = separate(rank_scores(torch.tensor([0.0, 1.0, 2.0])), rank_scores(torch.tensor([3.0, 4.0])))
    assert found.auroc - worst.auroc == found.auroc_error == 0.5
    assert found.fpr95 == worst.fpr95 == 1.0
    assert found.aupr - worst.aupr <= found.aupr_error


def test_cells_are_those_of_the_scores():
    generator = torch.Generator().manual_seed(0)
    positive, negative = (torch.randint(40, (500,), generator=generator) for _ in range(2))
    expected = score_cells(positive.double().sort().values, negative.double().sort().values)
    for one, other in zip(
        count_cells(*(torch.bincount(x, minlength=40) for x in (positive, negative))), expected, strict=True
    ):
        assert torch.equal(one, other)


def test_many_places_are_joined_to_few_cells_without_losing_a_sample():
    generator = torch.Generator().manual_seed(0)
    positive, negative = (torch.randint(5, (30_000,), generator=generator) for _ in range(2))
    positive[777] = 10**6  # as many as a cell
    *counts, atoms = count_cells(positive, negative, cells=64)
    assert [int(x.sum()) for x in counts] == [int(positive.sum()), int(negative.sum())]
    assert len(atoms) <= 3 * 64
    assert bool(atoms[counts[0].argmax()])
    assert int(counts[0].max()) == 10**6


def test_counted_scores_answer_as_all_scores_do():
    values = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 4.0]).double()
    counted = Counted(torch.tensor([0.0, 1.0, 4.0]).double(), torch.tensor([2, 3, 1]))
    assert len(counted) == 6
    assert [float(score_at(counted, i)) for i in (0, 1, 2, 4, 5, -1, -2)] == [0, 0, 1, 1, 4, 4, 1]
    edges = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, 9.0]).double()
    assert torch.equal(count_below(counted, edges), count_below(values, edges))
    assert histogram_rows("msp", {"a": counted}) == histogram_rows("msp", {"a": values})


@pytest.mark.parametrize("name", list(scores))
def test_a_place_has_the_score_of_its_samples(name):
    generator = torch.Generator().manual_seed(0)
    logits = (
        torch.randn(2000, 6, generator=generator, dtype=torch.float64) * torch.rand(2000, 1, generator=generator) * 9
    )
    evidence = gather(logits, extras=EXTRAS)
    behind = "log_p_value" if name == "structural_score" else name
    place = place_score(behind, scores[behind].number(evidence))
    counts = torch.bincount(place, minlength=98_304)
    counted = counted_scores(name, all_counts({behind: counts}, name))
    assert len(counted) == 2000
    assert bool((counted.values.diff() >= 0).all())
    rising = scores[name].function(evidence).sort().values
    again = counted.values.repeat_interleave(counted.counts)
    # 1/1024 of a logarithm of at most 100, or of the number itself.
    assert_close(again, rising, rtol=0.05 if behind in LOGARITHMIC else 2e-3, atol=2e-3)


def test_order_of_places_is_the_order_of_scores():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(500, 8, generator=generator, dtype=torch.float64) * 5
    evidence = gather(logits, extras=EXTRAS)
    for name in (x for x in scores if x != "structural_score"):
        number = scores[name].number(evidence)
        place = place_score(name, number)[number.argsort()]
        assert bool((place.diff() >= 0).all()), name
