"""The columns of a table: what each is, which are chosen, and the statistics that are restored from them."""

import pytest
import torch

from tests.functional.cases import random_logits
from torch_boc import functional
from torch_boc.core.schema import COINS
from torch_boc.functional import (
    bag_of_coins,
    compute_scores,
    restore_sample_stats,
    sample_columns,
    sample_stats,
)
from torch_boc.functional.table_columns import COLUMNS, columns_of


def test_every_column_is_what_its_name_says_and_has_no_gradient():
    logits = random_logits(20, 7).requires_grad_()
    columns, coins = sample_columns(logits, trials=30), bag_of_coins(logits)
    assert tuple(columns) == COLUMNS
    expected = {name: getattr(coins, name) for name in (*COLUMNS[:7], "odds", "loss")} | compute_scores(
        logits, ["energy", "logit_gap"]
    )
    expected |= {"p_value": functional.p_value(coins, 30), "log_p_value": functional.log_p_value(coins, 30)}
    for name, value in columns.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-14, atol=0, msg=lambda m, n=name: f"{n}: {m}")
        assert not value.requires_grad, name
    chosen = sample_columns(logits, trials=30, columns=["free_gap", "prediction", "p_value", "free_gap"])
    assert list(chosen) == ["free_gap", "prediction", "p_value"]
    for name, value in chosen.items():
        torch.testing.assert_close(value, columns[name], rtol=1e-14, atol=0)


@pytest.mark.parametrize("columns", ["gap", ["gap", "gip"], []])
def test_unknown_columns_are_refused_with_the_known_names(columns):
    known = ", ".join(COLUMNS)
    with pytest.raises(ValueError, match=f"expected columns as a list of names among {known}, got "):
        sample_columns(random_logits(4, 5), columns=columns)


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
        torch.testing.assert_close(
            column, table[name], rtol=1e-12, atol=0, msg=lambda text, name=name: f"{name}: {text}"
        )
    torch.testing.assert_close(restored.log_odds, stats.log_odds, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(restored.top, stats.top)
    right = stats.coins.prediction == target
    assert bool((restored.distance[right] == 0).all())
    assert bool(restored.distance[~right].isnan().all())
    whole = restore_sample_stats(sample_columns(logits, target) | {"target": target}, num_classes=classes)
    torch.testing.assert_close(whole.distance, stats.distance, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("missing", COINS)
def test_missing_columns_are_named(missing):
    table = {name: x for name, x in sample_columns(random_logits(40, 4)).items() if name != missing}
    with pytest.raises(ValueError, match=f"got none of the name '{missing}'"):
        restore_sample_stats(table, num_classes=4)
