"""The test that is calibrated on a random half of a set holds on the other half."""

import pytest
import torch

from tests.evaluation.streamed.tables import some_samples
from torch_boc import ConformalTest
from torch_boc.evaluation.streamed.sample import row_draws
from torch_boc.evaluation.streamed.screening import screening_rows
from torch_boc.evaluation.streamed.state import Block, Plan, SetState
from torch_boc.functional import gather, p_value

LOGITS, TARGET = some_samples(1500)
EVIDENCE = gather(LOGITS, TARGET, extras=True)


def rows_of(seed):
    state = SetState(Plan("id", seed=seed))
    state.add(Block(EVIDENCE, LOGITS, torch.arange(1500)))
    return screening_rows([state], state.scores, {}, seed=seed, progress=lambda message: None), state


def test_the_level_holds_over_many_halves():
    found = [row for seed in range(60) for row in rows_of(seed)[0].screening if row.score == "log_odds"]
    at_five = torch.tensor([(row.flagged, row.chance) for row in found if row.alpha == 0.05]).double()
    assert at_five[:, 0].mean().item() == pytest.approx(0.05, abs=0.005)
    assert 0.01 <= (at_five[:, 1] <= 0.1).double().mean().item() <= 0.25


def test_shares_are_those_of_the_test_itself():
    rows, state = rows_of(3)
    first = row_draws(3, torch.arange(1500))[1] < 0.5
    for row in (x for x in rows.screening if x.test == "conformal"):
        test = ConformalTest(row.score).calibrate(LOGITS[first])
        assert row.held_out_samples == int(first.sum())
        assert row.flagged == pytest.approx(float((test(LOGITS[~first]) <= row.alpha).double().mean()), abs=1e-12)
    paper = {row.alpha: row.flagged for row in rows.screening if row.test == "paper"}
    for alpha, share in paper.items():
        assert share == pytest.approx(float((p_value(EVIDENCE.coins)[~first] <= alpha).double().mean()), abs=1e-12)
    assert state.samples == 1500
