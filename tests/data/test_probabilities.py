"""Probabilities in the place of logits are refused, or turned into logits when told so."""

import numpy as np
import pytest
import torch

from tests.data.cases import labelled, ood_logits
from torch_boc.data.logit_set import SMALLEST, SUM_TOLERANCE
from torch_boc.evaluation import LogitSet, evaluate, read_logits

REFUSED = "expected logits or log-probabilities, got probabilities .*from_probabilities=True .*--probabilities"


def softmax(pair):
    return pair[0].softmax(1), pair[1]


@pytest.fixture(scope="module")
def pairs():
    """Logits with targets for each set of an evaluation."""
    sets = {"id": labelled(300, seed=0), "calibration": labelled(200, seed=1), "train": labelled(200, seed=2)}
    return sets | {"ood": (ood_logits(200), None)}


def arguments(pairs, changed=()):
    """Those of `evaluate`, with the `changed` sets as probabilities."""
    sets = {name: softmax(pair) if name in changed else pair for name, pair in pairs.items()}
    return {name: pair[0] if pair[1] is None else pair for name, pair in sets.items()} | {"replicates": 10}


@pytest.mark.parametrize("name", ["id", "ood", "calibration", "train"])
def test_every_set_of_an_evaluation_is_looked_at_and_named(pairs, name):
    with pytest.raises(ValueError, match=f"^{name}: {REFUSED}"):
        evaluate(**arguments(pairs, [name]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(("classes", "digits"), [(2, 9), (3000, 9), (10, 3), (10, 2), (100, 2)])
def test_they_are_known_in_every_precision_and_rounded(dtype, classes, digits):
    logits = 3 * torch.randn(50, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    probabilities = logits.softmax(1).round(decimals=digits).to(dtype)
    probabilities[7] = float("nan")  # which decides nothing
    for make in (LogitSet, lambda x: read_logits(x, "test"), lambda x: read_logits({"logits": x}, "test")):
        with pytest.raises(ValueError, match=REFUSED):
            make(probabilities[8:])
        assert len(make(logits.to(dtype))) == 50
    with pytest.raises(ValueError, match=REFUSED):
        read_logits(probabilities, "test")
    with pytest.warns(UserWarning, match="left out 1 of 50 rows"):
        data = read_logits(probabilities, "test", from_probabilities=True)
    assert data.from_probabilities
    good = probabilities[probabilities[:, 0].isfinite()].double()
    torch.testing.assert_close(data.logits.double().softmax(1), good / good.sum(1, keepdim=True), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("digits", [0, 1, 6])
def test_percentages_are_refused(digits):
    shares = 100 * torch.randn(50, 10, generator=torch.Generator().manual_seed(0)).softmax(1)
    with pytest.raises(ValueError, match=r"got percentages .* sums to 100\); divide them by 100 .*--probabilities"):
        read_logits(shares.round(decimals=digits), "test")


@pytest.mark.parametrize(
    "logits",
    [torch.zeros(4, 3), torch.zeros(4, 1000), 50 * torch.ones(4, 2) + torch.arange(4.0)[:, None], torch.eye(3) * 9],
)
def test_what_is_neither(logits):
    assert len(read_logits(logits, "test")) == len(logits)


def test_zero_becomes_the_logarithm_of_a_tiny_number():
    data = read_logits((torch.tensor([[1.0, 0.0], [0.25, 0.75]]), [1, 0]), "test", from_probabilities=True)
    expected = torch.tensor([[0.0, np.log(SMALLEST)], [np.log(0.25), np.log(0.75)]], dtype=torch.float32)
    torch.testing.assert_close(data.logits, expected, rtol=1e-6, atol=0)
    half = read_logits(torch.tensor([[1.0, 0.0]], dtype=torch.float16), "test", from_probabilities=True)
    assert half.logits.dtype == torch.float32
    assert half.logits.isfinite().all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.5, 0.5], [2.0, -1.0]], r"in 1 of 2 rows, first in row 1 \(smallest -1, sum 1\)"),
        ([[0.5, 0.6]], r"in 1 of 1 rows, first in row 0 \(smallest 0\.5, sum 1\.1\)"),
        ([[5.0, -3.0], [1.0, 2.0]], "in 2 of 2 rows"),
    ],
)
def test_what_is_no_probability_is_refused_when_they_are_promised(rows, message):
    with pytest.raises(ValueError, match=f"^far: expected probabilities, .* within {SUM_TOLERANCE}.*{message}"):
        read_logits(torch.tensor(rows), "far", from_probabilities=True)


def test_a_set_is_renamed_and_keeps_the_rest(pairs):
    """The logarithm is taken once."""
    logits, target = softmax(pairs["id"])
    source = {"logits": logits, "y": target, "odin": logits.amax(1)}
    first = read_logits(source, "first", from_probabilities=True)
    for options in ({}, {"from_probabilities": True}):
        second = read_logits(first, "second", **options)
        assert (first.name, second.name, second.from_probabilities) == ("first", "second", True)
        assert second.logits is first.logits
        assert second.target is first.target
        assert second.columns == first.columns


def test_an_evaluation_of_probabilities_is_that_of_the_logits_without_their_energy(pairs):
    methods = ["temperature", "isotonic"]  # matrix scaling is another method on logits shifted row by row
    expected = evaluate(**arguments(pairs), methods=methods)
    found = evaluate(**arguments(pairs, pairs), methods=methods, from_probabilities=True)
    assert found.results.settings["from_probabilities"] is True
    assert expected.results.settings["from_probabilities"] is False
    columns = ["ece", "nll", "brier"]
    assert found.calibration[columns].to_numpy() == pytest.approx(expected.calibration[columns].to_numpy(), abs=2e-3)
    auroc = [report.ood.set_index("score")["auroc"] for report in (found, expected)]
    assert set(auroc[1].index) - set(auroc[0].index) == {"energy"}  # lost in the softmax
    for name in ("msp", "entropy", "gap", "log_p_value"):
        assert auroc[0][name] == pytest.approx(auroc[1][name], abs=1e-3)
    words = "logarithms of the given probabilities"
    assert words in found.to_markdown()
    assert words not in expected.to_markdown()


def test_sets_of_both_kinds_do_not_go_together(pairs):
    mixed = arguments(pairs)
    mixed["ood"] = read_logits(mixed["ood"].softmax(1), "x", from_probabilities=True)
    with pytest.raises(ValueError, match=r"expected all sets as logits or all as probabilities, got .*'id' .*'ood'"):
        evaluate(**mixed)


def test_what_may_be_probabilities_is_said_aloud():
    """All of [0, 1], as after a sigmoid, but no sums of 1."""
    with pytest.warns(UserWarning, match=r"test: every value lies in \[0, 1\], as probabilities do"):
        read_logits(torch.rand(40, 5, generator=torch.Generator().manual_seed(0)), "test")
