"""What is predicted is what `sample_columns` says of the model's logits, in input order, whatever the loader yields."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.dispatch import NoHostSync
from tests.inference.cases import SAMPLES, Counting, assert_same, data, expected, joined, predictor
from tests.nn.models import images, linear, resnet, roberta, tokens, vit
from torch_boc import BoCClassifier, BoCPredictor
from torch_boc.functional.columns import COLUMNS
from torch_boc.inference.batches import BatchReader
from torch_boc.inference.loaders import count_samples


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(*data(), strict=True)


def batches(size=5):
    x, y = data()
    return list(zip(x.split(size), y.split(size), strict=True))


LOADERS = {
    "DataLoader": lambda: DataLoader(TensorDataset(*data()), 5),
    "with workers": lambda: DataLoader(TensorDataset(*data()), 5, num_workers=2),
    "iterable data set": lambda: DataLoader(Stream(), 5),
    "data set": lambda: TensorDataset(*data()),
    "iterable data set, bare": Stream,
    "list of tuples": batches,
    "list of lists": lambda: [[x, y.tolist()] for x, y in batches()],
    "generator": lambda: (batch for batch in batches()),
    "mappings": lambda: [{"x": x, "labels": y} for x, y in batches()],
    "narrow integers": lambda: [(x, y.to(torch.uint8)) for x, y in batches()],
    "mapping and target": lambda: [({"x": x}, y) for x, y in batches()],
    "an empty batch": lambda: [*batches(), (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))],
}


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS.keys())
def test_loaders(loader):
    model = Counting()
    tables = list(predictor(model).predict(loader()))
    assert_same(joined(tables), expected(model.layer(data()[0]), data()[1]))
    assert list(tables[0]) == ["index", "target", *COLUMNS]


UNLABELLED = {
    "tensors": lambda: list(data()[0].split(5)),
    "one tensor": lambda: data()[0],
    "tuples of one": lambda: DataLoader(TensorDataset(data()[0]), 5),
    "mappings": lambda: [{"x": x, "label": None} for x in data()[0].split(5)],
    "positional arguments": lambda: [((x,), None) for x in data()[0].split(5)],
}


@pytest.mark.parametrize("loader", UNLABELLED.values(), ids=UNLABELLED.keys())
def test_loaders_without_targets(loader):
    model = Counting()
    assert_same(joined(predictor(model).predict(loader())), expected(model.layer(data()[0])))


def test_to_frame():
    pandas = pytest.importorskip("pandas")
    model = Counting()
    frame = predictor(model, batch_size=4).to_frame(TensorDataset(*data()))
    assert isinstance(frame, pandas.DataFrame)
    assert model.calls == [4] * 5 + [3]
    assert frame.dtypes["prediction"] == "int64"
    assert_same(
        {name: torch.tensor(frame[name].to_numpy()) for name in frame}, expected(model.layer(data()[0]), data()[1])
    )


def test_trials():
    model = Counting()
    assert_same(joined(predictor(model, trials=7).predict(data()[0])), expected(model.layer(data()[0]), trials=7))


def test_chosen_columns():
    model = Counting()
    names = ["free_gap", "prediction"]
    table = joined(predictor(model, columns=names).predict(TensorDataset(*data())))
    assert list(table) == ["index", "target", *names]
    assert_same(table, {name: expected(model.layer(data()[0]), data()[1])[name] for name in table})
    assert list(predictor(columns=names).to_frame([])) == ["index", *names]
    with pytest.raises(ValueError, match=r"expected columns as a list of names among prediction, .*, got 'freegap'"):
        predictor(columns=["freegap"])


def test_no_samples():
    assert list(predictor().predict([])) == []
    frame = predictor().to_frame([])
    assert list(frame) == ["index", *COLUMNS]
    assert len(frame) == 0


def sentences():
    """A data set of dicts with more in it than the model takes."""
    inputs = tokens(11)
    return [
        {"input_ids": ids, "attention_mask": mask, "label": i % 4, "text": f"sentence {i}", "idx": i}
        for i, (ids, mask) in enumerate(zip(*inputs.values(), strict=True))
    ]


def test_roberta_on_a_data_set_of_dicts():
    model = roberta()
    table = joined(predictor(model).predict(DataLoader(sentences(), 4)))
    logits = model(**tokens(11)).logits
    assert_same(table, expected(logits, torch.arange(11) % 4))


def test_roberta_on_what_a_tokenizer_gives():
    from transformers import BatchEncoding

    model = roberta()
    table = joined(predictor(model).predict([BatchEncoding(tokens(11))]))
    assert_same(table, expected(model(**tokens(11)).logits))


def test_vit_on_what_an_image_processor_gives():
    from transformers import BatchFeature

    model, x = vit(), images(7)
    loader = [BatchFeature({"pixel_values": part, "labels": torch.ones(len(part)).long()}) for part in x.split(3)]
    table = joined(predictor(model).predict(loader))
    assert_same(table, expected(model(pixel_values=x).logits, torch.ones(7).long()))


class LikeHuggingFace:
    """The interface of `datasets.Dataset`, which gives lists until it is told otherwise."""

    def __init__(self, kind=None):
        self.format = {"type": kind}

    def with_format(self, kind):
        return LikeHuggingFace(kind)

    def __len__(self):
        return 11

    def __getitem__(self, i):
        row = sentences()[i]
        return {
            name: x.tolist() if isinstance(x, torch.Tensor) and not self.format["type"] else x
            for name, x in row.items()
        }


@pytest.mark.parametrize("kind", [None, "torch"])
def test_a_hugging_face_data_set_as_it_is(kind):
    model = roberta()
    table = joined(predictor(model, batch_size=4).predict(LikeHuggingFace(kind)))
    assert_same(table, expected(model(**tokens(11)).logits, torch.arange(11) % 4))


def test_resnet_and_a_wrapped_classifier():
    model, x = resnet(), images(5, 32)
    logits = model(x)
    assert_same(joined(predictor(model).predict([x[:3], x[3:]])), expected(logits))
    assert_same(joined(predictor(BoCClassifier(model)).predict([x])), expected(logits))


def test_keywords_that_forward_names_are_kept_and_others_left_out():
    class Model(nn.Module):
        def forward(self, x, *, scale=1.0):
            return x * scale

    class Open(nn.Module):
        def forward(self, x, **kwargs):
            return x

    x = torch.randn(2, 3)
    rows = {"x": x, "scale": 2.0, "idx": torch.arange(2), "text": ["a", "b"]}
    assert set(BatchReader(Model()).read(rows).kwargs) == {"x", "scale"}
    assert set(BatchReader(Open()).read(rows).kwargs) == {"x", "idx"}
    assert set(BatchReader(Model()).read({"pixels": x}).kwargs) == {"pixels"}, "so that the model itself complains"


def test_autocast():
    model = linear()
    table = joined(predictor(model, dtype=torch.bfloat16).predict(data()[0]))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(data()[0])
    assert logits.dtype == torch.bfloat16
    assert_same(table, expected(logits))


def test_compiled(monkeypatch):
    """The model runs through torch.compile; without its code generation here."""
    compiled = []
    compile = torch.compile

    def record(model):
        compiled.append(model)
        return compile(model, backend="eager")

    monkeypatch.setattr(torch, "compile", record)
    model = linear()
    table = joined(predictor(model, compile=True).predict(data()[0].split(5)))
    assert compiled == [model]
    assert_same(table, expected(model(data()[0])))
    torch.compiler.reset()


def test_tables_are_ordinary_tensors():
    for table in predictor().predict(data()[0].split(5)):
        for value in table.values():
            assert not value.is_inference()
            assert not value.requires_grad
            value += 1


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_launching_ahead_changes_nothing_but_the_time(ahead):
    """As on CUDA, where a table is awaited when the next has been launched."""
    model = Counting()
    ours = predictor(model)
    ours._ahead = ahead
    tables = ours.predict(data()[0].split(5))
    first = next(tables)
    assert len(model.calls) == 1 + ahead
    assert_same(joined([first, *tables]), expected(model.layer(data()[0])))


def test_the_computation_reads_nothing_back():
    ours = predictor(resnet())
    with NoHostSync():
        ours._columns(ours._reader.read(images(2, 32)))


def test_the_computation_stays_on_a_gpu():
    with FakeTensorMode():
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 7, device="cuda"))
        ours = predictor(model)
        assert ours.device.type == "cuda"
        batch = ours._reader.read((torch.randn(4, 3, 4, device="cuda"), torch.zeros(4, dtype=torch.long)))
        with NoHostSync():
            columns = ours._columns(batch)
    assert {x.device.type for x in columns.values()} == {"cuda"}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_cuda_agrees_with_the_cpu(dtype):
    model = Counting()
    on_cpu = joined(predictor(model).predict(TensorDataset(*data())))
    on_gpu = joined(predictor(model, device="cuda", dtype=dtype, batch_size=4).predict(TensorDataset(*data())))
    assert {x.device.type for x in on_gpu.values()} == {"cpu"}
    torch.testing.assert_close(on_gpu["gap"], on_cpu["gap"], rtol=0.1 if dtype else 1e-4, atol=0.05 if dtype else 1e-6)
    assert on_gpu["index"].tolist() == list(range(SAMPLES))
    assert on_gpu["target"].tolist() == on_cpu["target"].tolist()


def test_device_is_the_models_own_or_the_one_given():
    assert BoCPredictor(linear()).device == torch.device("cpu")
    assert BoCPredictor(nn.Identity()).device == torch.device("cpu")
    assert BoCPredictor(linear(), device="meta").model.weight.device.type == "meta"


@pytest.mark.parametrize(("drop_last", "expected"), [(False, 10), (True, 9)])
def test_the_bar_knows_how_many_samples_come(drop_last, expected):
    loader = DataLoader(TensorDataset(torch.randn(10, 5)), batch_size=3, drop_last=drop_last)
    assert count_samples(loader) == expected == sum(len(x) for (x,) in loader)
