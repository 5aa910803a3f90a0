"""What is predicted is what `sample_columns` says of the model's logits, in input order, whatever the loader yields."""

import sys
from functools import partial

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader, TensorDataset

from tests.dispatch import NoHostSync
from tests.inference.cases import (
    SAMPLES,
    Counting,
    Hungry,
    Loader,
    Stream,
    assert_same,
    data,
    expected,
    joined,
    predictor,
    read,
)
from tests.nn.models import linear, roberta, tokens
from torch_boc import BoCClassifier, BoCPredictor, ConformalTest
from torch_boc.data import read_logits
from torch_boc.data.extract import call_model
from torch_boc.functional.checks import ProbabilityCheck
from torch_boc.functional.table_columns import COLUMNS
from torch_boc.inference import batches
from torch_boc.inference.batches import LOGITS, grouped
from torch_boc.kernels import use
from torch_boc.kernels.dispatch import choose_kernels
from torch_boc.nn.decision_columns import SampleColumns

BATCHES = Loader(size=5).batches
LOADERS = {
    "DataLoader": lambda: DataLoader(TensorDataset(*data()), 5),
    "with workers": lambda: DataLoader(TensorDataset(*data()), 5, num_workers=2),
    "dataset": lambda: TensorDataset(*data()),
    "iterable dataset": Stream,
    "list of lists": lambda: [[x, y.tolist()] for x, y in BATCHES],
    "generator": lambda: iter(BATCHES),
    "mappings": lambda: [{"x": x, "labels": y} for x, y in BATCHES],
    "narrow integers": lambda: [(x, y.to(torch.uint8)) for x, y in BATCHES],
    "mapping and target": lambda: [({"x": x}, y) for x, y in BATCHES],
    "an empty batch": lambda: [*BATCHES, (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))],
}
UNLABELLED = {
    "one tensor": lambda: data()[0],
    "tuples of one": lambda: DataLoader(TensorDataset(data()[0]), 5),
    "mappings without": lambda: [{"x": x, "label": None} for x in data()[0].split(5)],
    "positional arguments": lambda: [((x,), None) for x in data()[0].split(5)],
}


@pytest.mark.parametrize("name", [*LOADERS, *UNLABELLED])
def test_loaders(name):
    model, has_target = Counting(), name in LOADERS
    wrapped = BoCClassifier(model) if name == "one tensor" else model
    tables = list(predictor(wrapped).predict((LOADERS | UNLABELLED)[name]()))
    assert_same(joined(tables), expected(model.layer(data()[0]), data()[1] if has_target else None))
    assert list(tables[0]) == ["index", *(["target", "target_log_probability"] if has_target else []), *COLUMNS]


def test_the_log_probability_of_the_target_is_that_of_a_softmax():
    """Even if it is the only column that is named; NaN where the target is no class; refused without targets."""
    model, (x, y) = Counting(), data()
    y[3] = -100
    ours = predictor(model, columns=["target_log_probability", "gap"])
    table = joined(ours.predict([(x, y)]))
    assert list(table) == ["index", "target", "target_log_probability", "gap"]
    want = model.layer(x).log_softmax(-1).gather(1, y.clamp_min(0)[:, None]).squeeze(1).detach()
    want[3] = torch.nan
    torch.testing.assert_close(table["target_log_probability"], want, equal_nan=True)
    with pytest.raises(ValueError, match="expected targets for the column 'target_log_probability', got a batch"):
        list(ours.predict([x]))


def test_likeliest_classes_names_and_logits(tmp_path):
    """In a frame and in a file, of which reports read the logits."""
    model, names = Counting(), ["cat", "dog", "owl", "fox", "bee"]
    ours = predictor(model, top_k=2, class_names=names, keep_logits=True, columns=["prediction"])
    logits = model.layer(data()[0]).detach()
    confidences, classes = logits.softmax(-1).topk(2)
    path = ours.to_parquet([data()], tmp_path / "rows.parquet")
    for frame in (ours.to_frame([data()]), parquet.read_table(path).to_pandas()):
        assert list(frame)[2:] == ["prediction", "top_classes", "top_confidences", "class_name", "logits"]
        assert frame["class_name"].tolist() == [names[i] for i in logits.argmax(-1).tolist()]
        assert [list(row) for row in frame["top_classes"]] == classes.tolist()
        torch.testing.assert_close(torch.tensor(np.stack([*frame["top_confidences"]])), confidences)
        torch.testing.assert_close(torch.tensor(np.stack([*frame["logits"]])), logits)
    assert [*ours.to_frame([])] == ["index", *ours.columns]
    read = read_logits(predictor(model, keep_logits=True).to_parquet([data()], tmp_path / "all.parquet"))
    torch.testing.assert_close(read.logits, logits)
    assert not read.columns  # what follows from the logits is no score of somebody else
    with pytest.raises(ValueError, match="expected 5 class_names, as the logits have classes, got 4"):
        list(predictor(model, class_names=names[:4]).predict(data()[0]))
    with pytest.raises(ValueError, match="expected the column 'prediction' with class_names="):
        predictor(model, class_names=names, columns=["gap"])
    with pytest.raises(TypeError, match="expected class_names as a list of strings, got "):
        predictor(model, class_names={0: "cat"})
    for top_k in (6, -1):
        with pytest.raises(ValueError, match=f"expected top_k from 0 to 5, the number of classes, got {top_k}"):
            list(predictor(model, top_k=top_k).predict(data()[0]))


class Overwriting(nn.Module):
    """Writes all its logits to the same memory, as a graph that is replayed."""

    def __init__(self, classes: int, room: int = SAMPLES) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(SAMPLES, classes))
        self.room = room

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        if len(x) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return self.memory[: len(x)].copy_(x)


@pytest.mark.parametrize("path", ["auto", "torch"])
@pytest.mark.parametrize("classes", [2, 5, 33, 300])
def test_small_batches_are_computed_together_and_every_bit_is_that_of_single_ones(path, classes, monkeypatch):
    x, y = 4 * torch.randn(SAMPLES, classes), torch.randint(classes, (SAMPLES,))
    test = ConformalTest().calibrate(torch.randn(99, classes))
    options = {"conformal_test": test, "top_k": 2, "keep_logits": True, "batch_size": 3}
    calls, samples = [], SampleColumns.__call__
    monkeypatch.setattr(SampleColumns, "__call__", lambda self, z, y: calls.append(len(z)) or samples(self, z, y))
    with use(path):
        tables = list(predictor(Overwriting(classes), **options).predict(TensorDataset(x, y)))
        assert calls == [len(table["index"]) for table in tables] == [3] * 7 + [2], "a table for each batch"
        calls.clear()
        together = joined(predictor(Overwriting(classes), **options)._predict(TensorDataset(x, y)))
        assert calls == ([SAMPLES] if choose_kernels(x) else [3] * 7 + [2])
        with pytest.warns(UserWarning, match="3 samples do not fit in memory; continuing with 1 at a time"):
            halved = joined(predictor(Overwriting(classes, room=1), **options)._predict(TensorDataset(x, y)))
    for name, want in joined(tables).items():
        torch.testing.assert_close(together[name], want, rtol=0, atol=0, equal_nan=True)
        exact = {"rtol": 0, "atol": 0} if choose_kernels(x) and path == "auto" else {}
        torch.testing.assert_close(halved[name], want, equal_nan=True, **exact)


def test_a_group_ends_with_its_block_with_other_columns_and_as_time_goes_by(monkeypatch):
    def cut(most, block=None, classes=(10, 10, 10, 10, 10)):
        rows = [{"index": torch.arange(4), LOGITS: torch.zeros(4, count)} for count in classes]
        return [len(x["index"]) for x in grouped(rows, most, block)]

    assert cut(10_000) == [20]
    assert cut(2 * 4 * 10) == cut(10_000, block=8) == [8, 8, 4]
    assert cut(10_000, classes=(10, 10, 3, 3, 10)) == [8, 8, 4]
    monkeypatch.setattr(batches, "GROUP_SECONDS", 0.0)
    assert cut(10_000) == [4] * 5


def test_a_frame_of_chosen_columns():
    pandas = pytest.importorskip("pandas")
    model, names = Counting(), ["free_gap", "prediction"]
    frame = predictor(model, batch_size=4, trials=7, columns=names).to_frame(TensorDataset(*data()))
    assert frame.index.tolist() == list(range(len(frame)))
    assert isinstance(frame, pandas.DataFrame)
    assert model.calls == [4] * 5 + [3]
    assert list(frame) == ["index", "target", *names]
    want = expected(model.layer(data()[0]), data()[1], trials=7)
    found = {name: torch.tensor(frame[name].to_numpy()) for name in frame}
    assert_same(found, {name: want[name] for name in found})
    assert list(predictor(columns=names).to_frame([])) == ["index", *names]


class LikeHuggingFace:
    """The interface of `datasets.Dataset`, which gives lists until it is told otherwise, and too much."""

    def __init__(self, kind=None):
        self.format = {"type": kind}

    def with_format(self, kind):
        return LikeHuggingFace(kind)

    def __len__(self):
        return 11

    def __getitem__(self, i):
        inputs = {name: x[i] if self.format["type"] else x[i].tolist() for name, x in tokens(11).items()}
        return {**inputs, "label": i % 4, "text": f"sentence {i}", "idx": i}


def test_rows_of_hugging_face_that_are_not_padded():
    class Unpadded(LikeHuggingFace):
        def with_format(self, kind):
            return Unpadded(kind)

        def __getitem__(self, i):
            return {"input_ids": torch.ones(3 + i % 2)}

    with pytest.raises(ValueError, match=r"rows of one length, .*padding='max_length', .*DataCollatorWithPadding"):
        list(predictor(roberta()).predict(Unpadded()))


def test_what_hugging_face_gives():
    from transformers import BatchEncoding

    model = roberta()
    logits = model(**tokens(11)).logits
    for loader in (DataLoader(LikeHuggingFace("torch"), 4), LikeHuggingFace(), LikeHuggingFace("torch")):
        table = joined(predictor(model, batch_size=4).predict(loader))
        assert_same(table, expected(logits, torch.arange(11) % 4))
    assert_same(joined(predictor(model).predict([BatchEncoding(tokens(11))])), expected(logits))


def test_autocast():
    model = linear()
    table = joined(predictor(model, dtype=torch.bfloat16).predict(data()[0]))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(data()[0])
    assert logits.dtype == torch.bfloat16
    assert_same(table, expected(logits))


@pytest.mark.filterwarnings("ignore:.* samples do not fit in memory")
@pytest.mark.parametrize(
    ("split", "room", "compiled"), [(5, 9, [5]), ([3, 5, 5, 5, 5], 9, [3, 5]), (8, 4, [8, 4])], ids=str
)
def test_batches_of_other_sizes_are_not_compiled(split, room, compiled, monkeypatch):
    """Such as the last one, for which torch would compile again. A small or too large first one is no rule."""
    sizes = []
    monkeypatch.setattr(torch, "compile", lambda model, mode: lambda *x: sizes.append(len(x[0][0])) or model(*x))
    model = Hungry(room)
    table = joined(predictor(model, compile="reduce-overhead").predict(data()[0].split(split)))
    assert [*dict.fromkeys(sizes)] == compiled
    assert_same(table, expected(model.layer(data()[0])))


def calibrated(**options):
    inputs = torch.randn(200, 3, generator=torch.Generator().manual_seed(1))
    return ConformalTest(**options).calibrate(linear()(inputs).detach())


def test_the_table_has_the_columns_of_a_test(tmp_path):
    model, test = Counting(), calibrated(score="tempered_dominance")
    ours = predictor(model, conformal_test=test, alpha=0.3, batch_size=23)
    logits = model.layer(data()[0]).detach()
    want = {**expected(logits, data()[1]), "p_in_distribution": test(logits), "review": test.flag(logits, 0.3)}
    test.calibrate(logits / 10)  # the predictor has a copy
    assert 0 < want["review"].sum() < 23
    assert_same(joined(ours.predict(TensorDataset(*data()))), want)
    assert ours.to_frame([]).dtypes["review"] == "bool"
    assert_same(read(ours.to_parquet(TensorDataset(*data()), tmp_path / "samples.parquet")), want)


def test_arguments_are_checked():
    for options, message in (
        ({"columns": ["gap"], "conformal_test": calibrated()}, "'p_in_distribution' or 'review' among the columns"),
        ({"dtype": torch.float32}, r"expected dtype as .*bfloat16.* or None, got .*float32"),
        ({"trials": 0}, "positive integer"),
        ({"conformal_test": ConformalTest()}, "expected held-out samples"),
    ):
        with pytest.raises(ValueError, match=message):
            predictor(**options)
    with pytest.raises(TypeError, match=r"expected model as a .*Module, got function"):
        BoCPredictor(lambda x: x)
    with pytest.raises(ValueError, match="expected logits with 7 classes, as in the first batch, got 5"):
        list(predictor(conformal_test=ConformalTest().calibrate(torch.randn(50, 7))).predict(data()[0]))


def test_the_computation_reads_nothing_back_and_stays_on_a_gpu():
    ours = predictor(conformal_test=calibrated())
    ours._first = ProbabilityCheck()
    with FakeTensorMode(allow_non_fake_inputs=True):
        ours._forward = partial(call_model, nn.Linear(3, 5, device="cuda"), None)
        for name in ("counts", "invalid"):
            value = getattr(ours.conformal_test, name)
            setattr(ours.conformal_test, name, torch.zeros(value.shape, dtype=torch.int64, device="cuda"))
        with NoHostSync():
            columns = ours._columns(ours._reader.read(torch.randn(4, 3, device="cuda")))
    assert {x.device.type for x in columns.values()} == {"cuda"}


def test_device_is_the_models_own_or_the_one_given():
    assert BoCPredictor(linear()).device == BoCPredictor(nn.Identity()).device == torch.device("cpu")
    ours = BoCPredictor(linear(), device="meta", conformal_test=calibrated())
    assert ours.model.weight.device.type == ours.conformal_test.counts.device.type == "meta"


def modes(model):
    return [module.training for module in model.modules()]


def test_eval_mode_during_and_the_old_modes_after():
    """In training, but for a normalisation that the user has frozen."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 5)).train()
    model[1].eval()
    before, buffers, during = modes(model), [x.clone() for x in model.buffers()], []
    model.register_forward_hook(lambda *_: during.append((modes(model), torch.is_inference_mode_enabled())))
    for table in predictor(model).predict(data()[0].split(5)):
        assert not any(value.is_inference() for value in table.values())
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
    assert during == [([False] * 5, True)] * 5
    assert modes(model) == before
    assert all(torch.equal(x, y) for x, y in zip(model.buffers(), buffers, strict=True))
    with pytest.raises(ZeroDivisionError):
        list(predictor(model).predict(torch.ones(2, 3) / (2 - i) if i < 2 else 1 / 0 for i in range(3)))
    assert modes(model) == before
    tables = predictor(model).predict(data()[0].split(5))
    next(tables)
    tables.close()
    assert modes(model) == before


X = torch.ones(2, 3)
TOKENS, ONE_ROW = nn.Unflatten(1, (3, 1)), nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (1, 6)))
PROBABILITIES = nn.Sequential(linear(), nn.Softmax(-1))
REFUSED = {
    "three parts": ([(X, X, X)], ValueError, r"got a tuple of 3; .*\(\(x1, x2\), target\).*; if the last .* id='name'"),
    "lists": ([{"x": [1, 2]}], TypeError, r"a batch with tensors of shape \(N, ...\), got a dict with 'x': list; give"),
    "text": ([(X, ["cat", "dog"])], TypeError, "expected targets as integer class indices, got a list of str"),
    "too many": ([(X, torch.ones(3).long())], ValueError, r"expected target of shape \(2,\)"),
    "no loader": (7, TypeError, "expected a loader, a dataset or a tensor, got int"),
    "tokens": ([X], ValueError, r"expected logits of shape \(2, C\) for 2 samples, got .*one row", TOKENS),
    "pooled": ([X], ValueError, r"expected logits of shape \(2, C\) for 2 samples, got .*one row", ONE_ROW),
    "softmax": ([X], ValueError, r"got probabilities .*; remove the softmax from the model", PROBABILITIES),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(case):
    loader, error, message, *model = case
    with pytest.raises(error, match=message):
        list(predictor(*model).predict(loader))


@pytest.mark.parametrize(("shown", "progress"), [(True, True), (False, True), (True, False)])
def test_the_bar_counts_samples_in_a_terminal(shown, progress, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: shown, raising=False)
    list(BoCPredictor(Counting(), progress=progress).predict(DataLoader(TensorDataset(*data()), 5)))
    line = capsys.readouterr().err
    assert ("23/23" in line and "samples/s" in line) if shown and progress else line == ""


MISSING = {
    "tqdm.auto": lambda ours, path: next(ours.predict([X])),
    "pandas": lambda ours, path: ours.to_frame([X]),
    "pyarrow": lambda ours, path: ours.to_parquet([X], path),
}


@pytest.mark.parametrize(("module", "call"), MISSING.items(), ids=MISSING.keys())
def test_a_missing_dependency_names_the_extra_before_the_work(module, call, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    model = Counting()
    with pytest.raises(ImportError, match=r"pip install 'torch-boc\[eval\]'"):
        call(BoCPredictor(model), tmp_path / "samples.parquet")
    assert model.calls == []


@pytest.mark.parametrize("target", [[0, 1, 1], [False, True, True], [0.0, 1.0, 1.0], [[0.0], [1.0], [1.0]]], ids=str)
def test_binary_targets_may_be_those_of_the_loss(target):
    model, x = torch.nn.Linear(3, 1), torch.randn(3, 3)
    predictor = BoCPredictor(model, binary=True, progress=False)
    for dtype in (None, torch.uint8, torch.uint16):
        (table,) = predictor.predict([(x, torch.tensor(target, dtype=dtype))])
        assert table["target"].tolist() == [0, 1, 1]
    expected = torch.nn.functional.logsigmoid(model(x).squeeze(1) * torch.tensor([-1.0, 1.0, 1.0]))
    torch.testing.assert_close(table["target_log_probability"], expected.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_chosen_head_and_single_logits(compiled, monkeypatch):
    """The same table as that of a model that returns the logits (0, z)."""
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, mode: compile(function, backend="eager"))
    torch.manual_seed(0)
    head, x = torch.nn.Linear(3, 1), torch.randn(7, 3)
    pairs = torch.cat([torch.zeros(7, 1), head(x)], 1).detach()
    for logits in ("0", lambda output: output.logit()):
        model = torch.nn.Sequential(head, torch.nn.Sigmoid())
        predictor = BoCPredictor(model, logits=logits, binary=True, compile=compiled, progress=False)
        (table,) = predictor.predict([x])
        (wanted,) = BoCPredictor(torch.nn.Identity(), progress=False).predict([pairs])
        torch.testing.assert_close(table, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="expected single logits, got probabilities"):
        list(BoCPredictor(model, binary=True, progress=False).predict([4 * x]))
    assert BoCPredictor(model, logits="0").settings != BoCPredictor(model, logits="1").settings
