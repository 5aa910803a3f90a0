"""A column of the batch goes through to the table, and not to the model."""

import numpy
import pyarrow.parquet as parquet
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.inference.cases import SAMPLES, Counting, assert_same, data, expected, joined, predictor, read
from torch_boc.functional.table_columns import COLUMNS

X, Y = data()
TEXTS = [f"image {i}.png é" for i in range(SAMPLES)]
NUMBERS = [10_000_000_019 * i - 5 for i in range(SAMPLES)]
SMALL = list(range(SAMPLES))
# What the loader gives, and the type and the values in the file.
IDS = {
    "strings": (TEXTS, "string", TEXTS),
    "ints": (NUMBERS, "int64", NUMBERS),
    "tensor": (torch.tensor(NUMBERS), "int64", NUMBERS),
    "narrow ints of NumPy": ([numpy.uint8(i) for i in SMALL], "uint8", SMALL),
    "narrow tensor": (torch.tensor(SMALL, dtype=torch.int16), "int16", SMALL),
    "floats": (torch.tensor(SMALL) / 4, "float", [i / 4 for i in SMALL]),
    "array of strings": (numpy.array(TEXTS), "string", TEXTS),
}
FORMS = {
    "mapping": lambda x, y, ids: {"x": x, "labels": y, "path": ids},
    "three": lambda x, y, ids: (x, y, ids),
    "mapping and target": lambda x, y, ids: ({"x": x, "path": ids}, y),
    "no target": lambda x, y, ids: (x, None, ids),
    "mapping in a tuple": lambda x, y, ids: ({"x": x, "path": ids, "labels": y},),
}


def batches(form="three", ids=TEXTS, size=5):
    for start in range(0, SAMPLES, size):
        part = slice(start, start + size)
        yield FORMS[form](X[part], Y[part], ids[part])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_batch(form):
    model = Counting()
    tables = list(predictor(model, id="path").predict(batches(form)))
    assert list(tables[0])[:2] == ["index", "path"]
    assert [x for table in tables for x in table.pop("path")] == TEXTS
    assert_same(joined(tables), expected(model.layer(X), None if form == "no target" else Y))


@pytest.mark.parametrize(("ids", "kind", "want"), IDS.values(), ids=IDS.keys())
def test_every_kind_of_id(ids, kind, want, tmp_path):
    table = parquet.read_table(predictor(id="path").to_parquet(batches(ids=ids), tmp_path / "samples.parquet"))
    assert table.column_names[:4] == ["index", "path", "target", "target_log_probability"]
    assert str(table.schema.field("path").type) == kind
    assert table["path"].to_pylist() == predictor(id="path").to_frame(batches(ids=ids))["path"].tolist() == want


def test_a_shuffled_loader_has_ids_and_no_index(tmp_path):
    model, order = Counting(), torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(X, Y, torch.arange(SAMPLES)), 5, shuffle=True, generator=order)
    table = read(predictor(model, id="key").to_parquet(loader, tmp_path / "samples.parquet"))
    key, want = table.pop("key"), expected(model.layer(X), Y)
    assert not torch.equal(key, want.pop("index"))
    assert_same(table, {name: x[key] for name, x in want.items()})


class Open(nn.Module):
    """Takes any argument, and remembers their names."""

    def forward(self, x, **kwargs):
        self.names = set(kwargs)
        return x


def test_the_model_does_not_get_the_ids():
    """Without id= it is an argument as any other."""
    model, batch = Open(), {"x": X[:2], "path": torch.arange(2), "mask": torch.ones(2)}
    for id, names in (("path", {"mask"}), (None, {"mask", "path"})):
        list(predictor(model, id=id).predict([batch]))
        assert model.names == names


def test_an_index_of_the_users_own():
    (table,) = predictor(id="index").predict([{"x": X, "index": torch.arange(SAMPLES) + 7}])
    assert table["index"].tolist() == list(range(7, SAMPLES + 7))
    assert list(table) == ["index", *COLUMNS]


def test_memory_that_is_used_again():
    """Targets and ids are copied before the loader is asked for the next batch."""
    y, ids = torch.empty(2, 5).long()

    def reusing():
        for start, (x, target) in enumerate(zip(*(part[:20].split(5) for part in (X, Y)), strict=True)):
            yield x, y.copy_(target), ids.copy_(torch.arange(5) + 5 * start)

    table = joined(predictor(id="path").predict(reusing()))
    assert table["path"].tolist() == list(range(20))
    assert torch.equal(table["target"], Y[:20])


TWO = X[:2]
BAD = {
    "no third": (
        (TWO, TWO),
        r"expected a batch \(x, target, id\), .*key 'path'.*, got a tuple of Tensor \(2, 3\) of 2",
    ),
    "no such key": ({"x": TWO, "name": ["a", "b"]}, "key 'path' for the ids, and not both, got a dict with 'x': Te"),
    "too few": ((TWO, None, ["a"]), "an id for each of the 2 samples of the batch, got 1"),
    "an axis": ((TWO, None, torch.zeros(2, 1)), r"a tensor of N integers or floats, got a Tensor"),
    "complex": ((TWO, None, torch.zeros(2, dtype=torch.complex64)), "got a Tensor.*complex64"),
    "one text": ((TWO, None, "ab"), "expected ids as a list of N strings.*, got a str"),
    "too large": ((TWO, None, [1, 2**70]), "expected ids as .*, got a list of int"),
    "bfloat16": ((TWO, None, torch.zeros(2, dtype=torch.bfloat16)), "got a Tensor.*dtype torch.bfloat16"),
    "two places": (({"x": TWO, "path": ["a", "b"]}, None, ["c", "d"]), "and not both, got a tuple of dict, No"),
}


@pytest.mark.parametrize(("batch", "message"), BAD.values(), ids=BAD.keys())
def test_bad_ids(batch, message):
    model = Counting()
    with pytest.raises((ValueError, TypeError), match=message):
        list(predictor(model, id="path").predict([batch]))
    assert model.calls == []


def test_bad_names():
    with pytest.raises(ValueError, match="an id that the model does not need as an argument, got 'x'"):
        list(predictor(id="x").predict([{"x": X}]))
    for name in ("", 3, "gap", "target"):
        with pytest.raises(ValueError, match=r"expected id as the name of a new column, not one of target, .*, got "):
            predictor(id=name)
