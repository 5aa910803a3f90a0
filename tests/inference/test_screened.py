"""With a test, the table says what the test says of the model's logits; a resumed run must have the same test."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import TensorDataset

from tests.dispatch import NoHostSync
from tests.inference.cases import Counting, Hungry, Loader, assert_same, data, expected, joined, predictor, read
from tests.nn.models import linear
from torch_boc import BoCClassifier, BoCPredictor, ConformalTest
from torch_boc.functional.columns import COLUMNS
from torch_boc.inference.identity import identify

SCREENED = ["p_in_distribution", "review"]


def held_out(seed=1, samples=200):
    with torch.no_grad():
        return linear()(torch.randn(samples, 3, generator=torch.Generator().manual_seed(seed)))


def calibrated(seed=1, **options):
    return ConformalTest(**options).calibrate(held_out(seed))


@torch.no_grad()
def verdict(test, logits, alpha=0.05):
    return {"p_in_distribution": test(logits), "review": test.flag(logits, alpha)}


@pytest.mark.parametrize("options", [{}, {"score": "msp"}, {"temperature": 3.0}, {"groups": "prediction"}])
@pytest.mark.filterwarnings("ignore:nothing can be flagged")
def test_the_table_has_the_columns_of_the_test(options, tmp_path):
    model, test = Counting(), calibrated(**options)
    ours = predictor(model, test=test, alpha=0.3, batch_size=23)
    logits = model.layer(data()[0])
    want = expected(logits, data()[1]) | verdict(test, logits, 0.3)
    assert 0 < want["review"].sum() < 23
    table = joined(ours.predict(TensorDataset(*data())))
    assert list(table) == ["index", "target", *COLUMNS, *SCREENED]
    assert_same(table, want)
    assert table["review"].dtype == torch.bool
    frame = ours.to_frame(TensorDataset(*data()))
    assert frame.dtypes["review"] == "bool"
    assert_same({name: torch.tensor(frame[name].to_numpy()) for name in frame}, want)
    assert_same(read(ours.to_parquet(TensorDataset(*data()), tmp_path / "samples.parquet")), want)


@pytest.mark.parametrize("names", [["review", "prediction"], ["p_in_distribution"]])
def test_chosen_columns(names):
    model, test = Counting(), calibrated()
    logits = model.layer(data()[0])
    ours = predictor(model, test=test, columns=names, batch_size=23)
    assert ours.columns == tuple(names)
    table = joined(ours.predict(data()[0]))
    every = expected(logits) | verdict(test, logits)
    assert_same(table, {name: every[name] for name in ["index", *names]})


@pytest.mark.filterwarnings("ignore:nothing can be flagged")
def test_no_samples(tmp_path):
    ours = predictor(test=calibrated(groups="confidence", score="concentration"), alpha=0.5)
    frame = ours.to_frame([])
    assert list(frame) == ["index", *COLUMNS, *SCREENED]
    assert (len(frame), str(frame.dtypes["review"])) == (0, "bool")
    assert len(read(ours.to_parquet([], tmp_path / "none.parquet"))["review"]) == 0


def test_smaller_pieces_give_the_same():
    test = calibrated()
    with pytest.warns(UserWarning, match="do not fit in memory"):
        table = joined(predictor(Hungry(4), test=test).predict([data()[0]]))
    want = verdict(test, linear()(data()[0]))
    torch.testing.assert_close({name: table[name] for name in SCREENED}, want, rtol=1e-2, atol=0)


def test_the_test_is_a_copy():
    test = calibrated()
    ours = predictor(test=test)
    before = joined(ours.predict(data()[0]))["p_in_distribution"]
    test.calibrate(held_out(seed=5) / 10)
    torch.testing.assert_close(joined(ours.predict(data()[0]))["p_in_distribution"], before, rtol=0, atol=0)
    assert ours.test is not test


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"expected held-out samples .*call calibrate\(logits\) first"):
        predictor(test=ConformalTest())
    with pytest.raises(TypeError, match=r"expected test as a torch_boc.ConformalTest, got str"):
        predictor(test="log_odds")
    with pytest.raises(ValueError, match=r"expected alpha in \(0, 1\), got 1"):
        predictor(test=calibrated(), alpha=1)
    with pytest.raises(ValueError, match="expected a test for the column 'review', got none"):
        predictor(columns=["review"])
    with pytest.raises(ValueError, match="'p_in_distribution' or 'review' among the columns"):
        predictor(columns=["gap"], test=calibrated())
    with pytest.warns(UserWarning, match="nothing can be flagged at alpha=0.001"):
        predictor(test=calibrated(), alpha=0.001)
    other = ConformalTest().calibrate(torch.randn(50, 7))
    with pytest.raises(ValueError, match="expected logits with 7 classes, as in the first batch, got 5"):
        list(predictor(test=other).predict(data()[0]))


def test_probabilities_of_the_model_are_refused_as_without_a_test():
    with pytest.raises(ValueError, match="expected logits from the model, got probabilities"):
        list(predictor(nn.Sequential(linear(), nn.Softmax(-1)), test=calibrated()).predict(data()[0]))


def test_the_computation_reads_nothing_back():
    ours = predictor(test=calibrated())
    with NoHostSync():
        ours._columns(ours._reader.read(data()[0]))


def fake(ours, device):
    """Put the counts of a predictor's test on a device that is not there."""
    for name in ("counts", "invalid"):
        setattr(ours.test, name, torch.zeros(getattr(ours.test, name).shape, dtype=torch.int64, device=device))


def test_the_computation_stays_on_a_gpu():
    ours = predictor(test=calibrated())
    with FakeTensorMode(allow_non_fake_inputs=True):
        ours._forward = nn.Linear(3, 5, device="cuda")
        fake(ours, "cuda")
        with NoHostSync():
            columns = ours._columns(ours._reader.read(torch.randn(4, 3, device="cuda")))
    assert {x.device.type for x in columns.values()} == {"cuda"}


def test_the_test_goes_to_the_device_of_the_predictor():
    test = calibrated()
    assert BoCPredictor(linear(), device="meta", test=test).test.counts.device.type == "meta"
    assert test.counts.device.type == "cpu"


def test_the_test_follows_the_logits_of_a_split_model():
    ours = predictor(test=calibrated())
    with FakeTensorMode(allow_non_fake_inputs=True):
        layer = nn.Linear(3, 5, device="cuda:0")
        ours._forward = lambda x: layer(x).to("cuda:1")
        fake(ours, "cuda:0")
        columns = ours._columns(ours._reader.read(torch.randn(4, 3, device="cuda:0")))
    assert {str(x.device) for x in columns.values()} == {"cuda:1"}


OTHERS = {
    "other held-out samples": (lambda: {"test": calibrated(seed=2)}, "'test': '"),
    "another score": (lambda: {"test": calibrated(score="energy")}, "'test': '"),
    "another level": (lambda: {"test": calibrated(), "alpha": 0.1}, "'alpha': 0.05.*'alpha': 0.1"),
    "no test": (dict, "'columns': "),
}


@pytest.mark.parametrize("run_id", [None, "mine"])
@pytest.mark.parametrize(("options", "message"), OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("healthy", [3, None])
def test_a_run_with_another_test_is_not_resumed(healthy, options, message, run_id, tmp_path):
    path, test = tmp_path / "samples.parquet", calibrated()
    if healthy:
        with pytest.raises(KeyboardInterrupt):
            predictor(test=test).to_parquet(Loader(healthy), path, resume=True, run_id=run_id)
    else:
        predictor(test=test).to_parquet(Loader(), path, resume=True, run_id=run_id)
    with pytest.raises(ValueError, match=f"expected the run that .*{message}"):
        predictor(**options()).to_parquet(Loader(), path, resume=True, run_id=run_id)
    model = Counting()
    restored = ConformalTest()
    restored.load_state_dict(test.state_dict())  # as in another process
    predictor(model, test=restored).to_parquet(Loader(), path, resume=True, run_id=run_id)
    logits = model.layer(data()[0])
    table = read(path)
    torch.testing.assert_close(table["gap"], expected(logits)["gap"])
    torch.testing.assert_close(table["p_in_distribution"], test(logits.detach()), rtol=1e-2, atol=0)


def test_what_a_test_remembers_is_not_part_of_a_models_identity():
    """A classifier with a test inside is the same model after its first call."""
    model, again = (BoCClassifier(linear(), test=calibrated()) for _ in range(2))
    with torch.no_grad():
        model(data()[0])
        model.test.flag(held_out(), 0.2)
    assert identify(model) == identify(again)
    assert identify(model) != identify(BoCClassifier(linear(), test=calibrated(seed=2)))
    table = joined(BoCPredictor(model, progress=False).predict(data()[0]))
    assert list(table) == ["index", *COLUMNS]
