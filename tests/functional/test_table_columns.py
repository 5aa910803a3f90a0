"""The columns of a table: what each is, which are chosen, and that they keep nothing of the graph."""

import pytest
import torch

from tests.functional.cases import random_logits
from torch_boc import functional
from torch_boc.functional import bag_of_coins, compute_scores, sample_columns
from torch_boc.functional.table_columns import COLUMNS


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
