"""The statistics that is restored from columns is the one that the columns were made of."""

import pytest
import torch
from torch.testing import assert_close

from tests.functional.cases import random_logits
from torch_boc.core.schema import COINS
from torch_boc.functional import restore_sample_stats, sample_columns, sample_stats
from torch_boc.functional.table_columns import columns_of


@pytest.mark.parametrize("classes", [2, 3, 10, 50_000])
@pytest.mark.parametrize("spread", [0.5, 12.0, 60.0])
def test_columns_and_classes_of_the_restored_evidence_are_those_of_the_columns(classes, spread):
    logits = random_logits(40, classes, scale=spread, seed=classes)
    target = logits.argmax(1)
    target[::3] = (target[::3] + 1) % classes
    table = sample_columns(logits)
    restored, stats = (
        restore_sample_stats(table | {"target": target}, num_classes=classes),
        sample_stats(logits, target, extras=["log_odds"]),
    )
    assert restored.num_classes == classes
    for name, column in columns_of(restored).items():
        assert_close(column, table[name], rtol=1e-12, atol=0, msg=lambda text, name=name: f"{name}: {text}")
    assert_close(restored.log_odds, stats.log_odds, rtol=1e-12, atol=1e-12)
    assert_close(restored.top, stats.top)
    right = stats.coins.prediction == target
    assert bool((restored.distance[right] == 0).all())
    assert bool(restored.distance[~right].isnan().all())
    whole = restore_sample_stats(sample_columns(logits, target) | {"target": target}, num_classes=classes)
    assert_close(whole.distance, stats.distance, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("missing", COINS)
def test_missing_columns_are_named(missing):
    table = {name: x for name, x in sample_columns(random_logits(40, 4)).items() if name != missing}
    with pytest.raises(ValueError, match=f"got none of the name '{missing}'"):
        restore_sample_stats(table, num_classes=4)


def test_nan_rows_stay_in_their_row():
    logits = random_logits(6, 4, scale=1.0)
    logits[2, 1] = torch.nan
    restored = restore_sample_stats(sample_columns(logits), num_classes=4)
    assert restored.coins.odds.isnan().tolist() == [False, False, True, False, False, False]
