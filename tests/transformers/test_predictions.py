"""What users get as predictions: right as far as it answers, and an error with the remedy where it cannot."""

import copy
import pickle

import numpy as np
import pytest
import scipy.special
import torch
from transformers import EvalPrediction
from transformers.trainer_pt_utils import nested_concat, nested_numpify

from tests.metrics.cases import labelled_batches
from torch_boc.transformers import BoCTrainerMetrics, Predictions

REFUSED = (
    r"needs the logits: the logits were not kept, .*predictions.argmax\(-1\), .*BoCTrainerMetrics\(keep_logits=True\)"
)


def made(keep_logits, shape=(20,), kind=nested_numpify):
    """Logits, and the predictions made of them: of arrays as after an evaluation, or of tensors."""
    logits, target = labelled_batches(20)[0]
    logits, target = logits[: torch.Size(shape).numel()].reshape(*shape, 7), target[: torch.Size(shape).numel()]
    boc = BoCTrainerMetrics(keep_logits=keep_logits, causal=False)
    return logits, kind(boc.preprocess(logits, target.reshape(shape)))


@pytest.mark.parametrize("keep_logits", [False, True])
@pytest.mark.parametrize("shape", [(20,), (4, 5)], ids=str)
def test_argmax_is_that_of_the_logits(shape, keep_logits):
    logits, predictions = made(keep_logits, shape)
    expected = logits.numpy().argmax(-1)
    found = (
        predictions.argmax(-1),
        predictions.argmax(axis=-1),
        predictions.argmax(axis=len(shape)),
        np.argmax(predictions, -1),
        np.argmax(predictions, axis=len(shape)),
    )
    for classes in found:
        assert isinstance(classes, np.ndarray)
        assert classes.dtype == np.int64
        np.testing.assert_array_equal(classes, expected)


@pytest.mark.parametrize("keep_logits", [False, True])
def test_argmax_of_tensors(keep_logits):
    logits, predictions = made(keep_logits, kind=lambda x: x)
    for classes in (
        predictions.argmax(-1),
        predictions.argmax(dim=-1),
        torch.argmax(predictions, -1),
        torch.argmax(predictions, dim=1),
    ):
        assert classes.equal(logits.argmax(-1))


def test_padding_is_class_0_as_of_padded_logits():
    """Trainer pads the second axis with -100, a row of which has its first top in class 0."""
    logits, short = made(False, (4, 2), kind=lambda x: x)
    _, kept = made(True, (4, 2), kind=lambda x: x)
    long_logits, long = made(False, (4, 5), kind=lambda x: x)
    _, long_kept = made(True, (4, 5), kind=lambda x: x)
    joined, kept = nested_concat(short, long), nested_concat(kept, long_kept)
    assert isinstance(joined, Predictions)
    assert joined.argmax(-1).equal(nested_concat(logits, long_logits).argmax(-1))
    assert joined.argmax(-1).equal(kept.argmax(-1))


QUESTIONS = {
    "softmax": lambda x: scipy.special.softmax(x, axis=-1),
    "asarray": np.asarray,
    "array": lambda x: np.array(x),
    "exp": np.exp,
    "max": lambda x: np.max(x, -1),
    "mean": lambda x: np.mean(x),
    "index": lambda x: x[:, 1],
    "slice": lambda x: x[:, :-1],
    "first row": lambda x: x[0],
    "rows": list,
    "unpacked": lambda x: zip(*x, strict=True),
    "comparison": lambda x: x == np.zeros((20, 1)),
    "inequality": lambda x: x != 0,
    "threshold": lambda x: x > 0,
    "difference": lambda x: x - 1,
    "negative": lambda x: -x,
    "from an array": lambda x: np.zeros((20, 7)) + x,
    "search": lambda x: 3.0 in x,
    "concatenated": lambda x: np.concatenate([x, x]),
    "in a list": lambda x: np.argmax([x, x], -1),
    "method": lambda x: x.max(-1),
    "shape": lambda x: x.shape,
    "dtype": lambda x: x.dtype,
    "reshape": lambda x: x.reshape(-1),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_other_questions_are_answered_by_the_logits_or_refused(ask):
    logits, kept = made(True)
    found, expected = ask(kept), ask(logits.numpy())
    np.testing.assert_array_equal(*((list(x) if isinstance(x, zip) else x) for x in (found, expected)))
    with pytest.raises((TypeError, AttributeError), match=REFUSED):
        ask(made(False)[1])


@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"axis": -1, "keepdims": True}], ids=str)
def test_other_argmax(options):
    logits, kept = made(True)
    np.testing.assert_array_equal(kept.argmax(**options), logits.numpy().argmax(**options))
    with pytest.raises(ValueError, match=r"expected argmax\(-1\).*keep_logits=True"):
        made(False)[1].argmax(**options)


def test_torch_takes_no_predictions():
    for keep_logits in (False, True):
        predictions = made(keep_logits, kind=lambda x: x)[1]
        for ask in (lambda x: torch.softmax(x, -1), lambda x: torch.eq(torch.zeros(20, 7), x), torch.max):
            with pytest.raises(TypeError, match=r"takes tensors, got Predictions; .*keep_logits=True"):
                ask(predictions)
    with pytest.raises(ValueError, match="object type 'Predictions'"):
        torch.tensor(made(False)[1])


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("keep_logits", [False, True])
def test_copies(duplicate, keep_logits):
    predictions = made(keep_logits)[1]
    np.testing.assert_array_equal(duplicate(predictions).argmax(-1), predictions.argmax(-1))
    assert duplicate(predictions).keys() == predictions.keys()


def test_what_is_printed():
    assert repr(made(False)[1]) == "Predictions(20 samples, argmax(-1) alone)"
    assert repr(made(True)[1]) == "Predictions(20 samples, logits of shape (20, 7))"
    assert len(made(False)[1]) == 20
    assert (made(False)[1].ndim, made(True, (4, 5))[1].ndim) == (2, 3)


def given(outcome):
    return {"given": type(outcome.predictions).__name__}


@pytest.mark.parametrize(
    ("options", "classes", "kept"),
    [
        ({}, 7, False),
        ({"compute_metrics": given}, 7, True),
        ({"compute_metrics": given}, 1024, True),
        ({"compute_metrics": given}, 1025, False),
        ({"compute_metrics": given, "keep_logits": True}, 1025, True),
        ({"compute_metrics": given, "keep_logits": False}, 7, False),
        ({"keep_logits": True}, 7, True),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, dict) else str(x),  # no address of a function: workers must agree on ids
)
def test_logits_are_kept_where_the_docstring_says(options, classes, kept):
    boc = BoCTrainerMetrics(**options)
    predictions = nested_numpify(boc.preprocess(torch.randn(4, classes), torch.arange(4)))
    assert predictions.has_logits == kept
    assert list(predictions.keys()) == ["columns", "classes", *(["logits"] if kept else [])]
    results = boc(EvalPrediction(predictions, np.arange(4)))
    assert results.get("given", kept) in (kept, "ndarray" if kept else "Predictions")


def test_predictions_know_their_number_of_classes():
    """Another evaluation, of a model with other classes, comes between; or another object asks."""
    boc = BoCTrainerMetrics(keys=["forced_gap"])
    predictions = nested_numpify(boc.preprocess(torch.randn(4, 5)))
    before = boc(EvalPrediction(predictions, None))
    boc(EvalPrediction(nested_numpify(boc.preprocess(torch.randn(4, 9))), None))
    assert boc(EvalPrediction(predictions, None)) == before
    assert BoCTrainerMetrics(keys=["forced_gap"])(EvalPrediction(predictions, None)) == before


def test_generated_tokens_are_no_logits():
    with pytest.raises(TypeError, match=r"got a Tensor \(4, 20\); with predict_with_generate=True .*leave it out"):
        BoCTrainerMetrics().preprocess(torch.zeros(4, 20, dtype=torch.long))
