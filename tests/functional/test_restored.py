"""The evidence that is restored from columns is the one that the columns were made of."""

import pytest
import torch
from torch.testing import assert_close

from torch_boc.functional import gather, restore_evidence, sample_columns
from torch_boc.functional.columns import COLUMNS, columns_of
from torch_boc.functional.restored import NEEDED, count_classes


def some_logits(classes, spread=4.0, rows=300):
    generator = torch.Generator().manual_seed(classes)
    return torch.randn(rows, classes, generator=generator, dtype=torch.float64) * spread


@pytest.mark.parametrize("classes", [2, 3, 10, 1000, 50_000])
@pytest.mark.parametrize("spread", [0.0, 0.5, 4.0, 12.0])
def test_columns_of_the_restored_evidence_are_the_columns(classes, spread):
    logits = some_logits(classes, spread, 40)
    table = sample_columns(logits)
    again = columns_of(restore_evidence(table, num_classes=classes))
    for name in COLUMNS:
        # ρ of evenly matched rivals is 0 / 0 in the limit, and log p* of a sure prediction is close to 0.
        assert_close(again[name], table[name], rtol=1e-8, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("classes", [3, 10, 1000])
def test_odds_are_restored_where_the_confidence_is_rounded_to_one(classes):
    logits = torch.zeros(30, classes, dtype=torch.float64)
    logits[:, 0] = torch.linspace(0.1, 300, 30, dtype=torch.float64)
    logits[:, 1] = -2.0
    evidence = gather(logits, extras=["log_odds"])
    restored = restore_evidence(sample_columns(logits), num_classes=classes)
    assert bool((evidence.coins.confidence == 1).any())
    assert_close(restored.coins.odds, evidence.coins.odds, rtol=1e-9, atol=0)
    assert_close(restored.coins.loss, evidence.coins.loss, rtol=1e-6, atol=0)
    assert_close(restored.log_odds, evidence.log_odds, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 4, 10, 151, 1000, 50_000])
def test_number_of_classes_follows_from_the_columns(classes):
    table = sample_columns(some_logits(classes, 3.0, 20))
    assert restore_evidence(table).num_classes == classes
    assert count_classes(table["confidence"], table["gap"] - table["free_gap"]) == classes


def test_top_margin_target_and_distance():
    logits = some_logits(7)
    target = logits.argmax(1)
    target[::3] = (target[::3] + 1) % 7
    evidence = gather(logits, target, extras=["margin"])
    restored = restore_evidence(sample_columns(logits) | {"target": target})
    assert_close(restored.top, evidence.top)
    assert_close(restored.margin, evidence.margin)
    assert torch.equal(restored.target, target)
    right = evidence.coins.prediction == target
    assert bool((restored.distance[right] == 0).all())
    assert bool(restored.distance[~right].isnan().all())


def test_free_gap_may_stand_for_the_forced_gap_and_both_may_be_missing():
    table = sample_columns(some_logits(5, 1.0))
    whole = restore_evidence(table)
    no_forced = restore_evidence({name: x for name, x in table.items() if name != "forced_gap"})
    neither = {name: x for name, x in table.items() if name not in ("forced_gap", "free_gap")}
    assert_close(no_forced.coins.odds, whole.coins.odds, rtol=1e-10, atol=0)
    assert_close(restore_evidence(neither, num_classes=5).coins.free_gap, whole.coins.free_gap, rtol=1e-8, atol=1e-12)
    with pytest.raises(ValueError, match=r"forced_gap or free_gap.*give num_classes"):
        restore_evidence(neither)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"confidence": torch.ones(1)}, r"expected columns prediction, .*'prediction'"),
        (dict.fromkeys((*NEEDED, "forced_gap"), torch.ones(0)), "one row"),
        (dict.fromkeys((*NEEDED, "forced_gap"), torch.full((2,), 0.3)), r"0\.3 and 0\.3; give num_classes"),
    ],
)
def test_what_cannot_be_restored_is_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        restore_evidence(columns)


def test_classes_that_rounding_hides_are_refused():
    table = sample_columns(some_logits(128_256, 3.0, 5))
    assert restore_evidence(table).num_classes == 128_256
    with pytest.raises(ValueError, match="give num_classes"):
        restore_evidence({name: x if name == "prediction" else x.float() for name, x in table.items()})


def test_nan_rows_stay_in_their_row():
    logits = some_logits(4, 1.0, 6)
    logits[2, 1] = torch.nan
    restored = restore_evidence(sample_columns(logits))
    assert restored.num_classes == 4
    assert restored.coins.odds.isnan().tolist() == [False, False, True, False, False, False]
