"""What the modules refuse, with a message that says what was expected and what came."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from tests.functional.cases import random_logits
from tests.nn.models import linear
from torch_boc import Acceptance, BoCClassifier, ConformalTest, DriftMonitor, RiskMonitor
from torch_boc.functional import sample_stats
from torch_boc.nn.decision_columns import SampleColumns

X, Y = random_logits(500, 5), torch.arange(500) % 5
BROKEN = torch.where(torch.arange(2500).view(500, 5) == 18, math.nan, X)
OPEN_UNIT = r"in \(0, 1\), got"


def a(**options):
    return Acceptance(**options).calibrate(X, Y)


def t(**options):
    return ConformalTest(**options).calibrate(X)


def c(**options):
    return BoCClassifier(linear(), **options)


def d(**options):
    return DriftMonitor(t(), **options)


BAD = {
    "acceptance": [
        (lambda: Acceptance().update(X), "expected targets, which tell the correct predictions, got none"),
        (lambda: Acceptance().update(sample_stats(X, extras=["log_odds"])), "expected statistics with targets"),
        (lambda: Acceptance().calibrate(X, Y[:50]), r"expected target of shape \(500,\)"),
        (lambda: Acceptance("confidence"), "expected groups as None, 'prediction' or the number .*, got 'confidence'"),
        (lambda: Acceptance(0), "expected groups as None, 'prediction' or the number of your own groups, got 0"),
        (lambda: Acceptance(2).calibrate(X, Y), "expected group=, an integer from 0 to 1 for each sample, got none"),
        (lambda: Acceptance(2).calibrate(X, Y, group=Y[:9]), r"expected group of shape \(500,\)"),
        (lambda: Acceptance(5).calibrate(X, Y, group=Y - 1), r"groups from 0 to 4, got 100"),
        (lambda: a().accept(X, group=Y), "expected no group, got one; make the object with groups="),
        (lambda: a().accept(X, max_error=0), f"expected max_error {OPEN_UNIT} 0"),
        (lambda: a().accept(X, delta=1), f"expected delta {OPEN_UNIT} 1"),
        (lambda: a().sets(X, 2), f"expected coverage {OPEN_UNIT} 2"),
        (lambda: a().sets(X, by_class=True), "expected groups='prediction' for sets by class, got other groups"),
    ],
    "test": [
        (lambda: t().flag(X, 0.0), f"expected alpha {OPEN_UNIT} 0.0"),
        (lambda: t().flag(X, delta=math.nan), f"expected delta {OPEN_UNIT} nan"),
        (lambda: t().threshold(1.0), f"expected alpha {OPEN_UNIT} 1.0"),
        (lambda: t().discoveries(X, -0.1), f"expected fdr {OPEN_UNIT} -0.1"),
        (lambda: t().update(torch.zeros(1, 6)), "expected logits with 5 classes, as in the first batch, got 6"),
        (lambda: t(score="given", groups="prediction"), "expected no groups by logits for scores that are given"),
        (lambda: t(score="nothing"), "expected score among msp"),
        (lambda: t(score="structural_score"), "expected a score that is higher in-distribution"),
        (lambda: t(groups="colour"), "None, 'prediction', 'confidence' or the number .* got 'colour'"),
        (lambda: t(groups=2.0), r"'confidence' or the number of your own groups, got 2\.0"),
        (lambda: t(resolution=3), "expected resolution as a power of two"),
        (lambda: ConformalTest()(X), "expected held-out samples to compare with, got none"),
        (lambda: ConformalTest().calibrate(BROKEN), r"without NaN and \+inf, got 1 other rows"),
        (lambda: ConformalTest().calibrate(X.softmax(-1)), "expected logits or log-probabilities, got prob"),
        (lambda: t()(X.softmax(-1)), "every row of the first new batch"),
        (lambda: ConformalTest().calibrate(scores=X[:, 0]).flag(X), "expected scores for a test .*got logits"),
        (lambda: t().update(scores=X[:, 0]), "expected logits for a test .*got scores"),
        (lambda: ConformalTest(groups="prediction").update(scores=X[:, 0]), "'prediction'.*got scores"),
        (lambda: t().test(X, scores=X[:, 0]), "expected logits or scores, got both"),
        (lambda: ConformalTest().calibrate(scores=[1.0]), "expected scores as a floating-point tensor, got list"),
        (lambda: ConformalTest().calibrate(scores=BROKEN[:, 3]), "got 1 other rows"),
        (lambda: t(score="energy").load_state_dict(t().state_dict()), "'energy'.*got.*score='gen'"),
        (lambda: t().merge(t(resolution=2)), "a ConformalTest with .*=1024.*got one with .*=2"),
    ],
    "monitor": [
        (lambda: d(alpha=0.1, run_length=100), r"expected alpha, or run_length above 1, got alpha=0\.1 and run"),
        (lambda: d(run_length=1), "got alpha=None and run_length=1"),
        (lambda: d(alpha=1.0), f"expected alpha {OPEN_UNIT} 1"),
        (lambda: DriftMonitor(ConformalTest()).update(X), "expected held-out samples to compare with, got none"),
        (lambda: DriftMonitor("log_odds"), r"expected conformal_test as a torch_boc\.ConformalTest, got str"),
        (lambda: d().update(X.softmax(-1)), "got probabilities"),
        (lambda: d(mix=True).update(scores=X[:, 0]), "a monitor with mix=True, got scores"),
        (lambda: d().load_state_dict(d(alpha=0.2).state_dict()), r"with alpha=0\.01, .*got .*alpha=0\.2,"),
        (lambda: d(run_length=9).load_state_dict(d(mix=True).state_dict()), r"=9, .*got .*alpha=0\.01, .*mix=True"),
    ],
    "audit": [
        (lambda: RiskMonitor(max_error=0), f"expected max_error {OPEN_UNIT} 0"),
        (lambda: RiskMonitor(alpha=1), f"expected alpha {OPEN_UNIT} 1"),
        (lambda: RiskMonitor().update(X[0]), r"correct as a tensor of booleans, got torch\.float64; pass prediction"),
        (lambda: RiskMonitor().update([True]), "correct as a tensor of booleans, got list"),
        (lambda: RiskMonitor().update(np.ones(3, dtype=bool)), "correct as a tensor of booleans, got ndarray"),
        (lambda: RiskMonitor().load_state_dict(RiskMonitor(0.02).state_dict()), r"the state .* max_error=0\.01"),
    ],
    "classifier": [
        (lambda: BoCClassifier(lambda x: x), "expected model as a .*Module, got function"),
        (lambda: BoCClassifier(nn.LSTM(3, 4))(torch.ones(1, 2, 3)), r"got a tuple of Tensor \(1, 2, 4\), .*; wrap "),
        (lambda: c(trials=0), "expected trials as a positive integer up to 1,000,000, got 0"),
        (lambda: c(conformal_test=linear()), r"expected a torch_boc\.ConformalTest, got Linear"),
        (lambda: c(acceptance=0.1), r"expected a torch_boc\.Acceptance, got float"),
        (lambda: c(acceptance=Acceptance(2)), "expected a torch_boc.Acceptance without groups of your own"),
        (lambda: c(conformal_test=t(), alpha=0), f"expected alpha {OPEN_UNIT} 0"),
        (lambda: c(max_error=1), f"expected max_error {OPEN_UNIT} 1"),
        (lambda: c(columns=["review"]), "a test for the column 'review', got none; give conformal_test="),
        (lambda: c(columns=["gap"], conformal_test=t()), r"distribution' or 'review' .* \['gap'"),
        (lambda: c(columns=["gip"], conformal_test=t()), r"review, accepted, got \['gip'\]"),
        (lambda: c(conformal_test=ConformalTest().calibrate(X[:, :4]))(torch.ones(2, 3)), "with 4 classes, .* got 5"),
        (lambda: SampleColumns(["accepted"]), "an acceptance for the column 'accepted', got none; give acceptance="),
        (
            lambda: SampleColumns(["gap"], acceptance=a()),
            "expected 'accepted' among the columns",
        ),
    ],
}


@pytest.mark.parametrize(("call", "message"), [pytest.param(*x, id=name) for name, rows in BAD.items() for x in rows])
@pytest.mark.filterwarnings("ignore:nothing can be accepted")
def test_what_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
