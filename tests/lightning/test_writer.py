"""The Parquet files that `trainer.predict` leaves."""

import pyarrow.parquet as parquet
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from tests.inference.cases import rows_of
from tests.lightning.cases import QUIET, Classifier, loader, logits_of, points, trainer
from torch_boc import ConformalTest
from torch_boc.functional.table_columns import COLUMNS
from torch_boc.lightning import BoCPredictionWriter

pytestmark = QUIET
DATA = points(37, 2)
ORDER = torch.randperm(37, generator=torch.Generator().manual_seed(3)).tolist()


@pytest.fixture
def module():
    return Classifier()


def predict(folder, module, loaders, **options):
    writer = BoCPredictionWriter(folder / "out", **options)
    trainer(folder, writer).predict(module, loaders, return_predictions=False)
    return folder / "out"


def table(folder, name="predictions-rank0.parquet"):
    read = parquet.read_table(folder / name)
    return {name: torch.tensor(read[name].to_numpy()) for name in read.column_names if name != "path"}


def assert_table(found, module, data, trials=100):
    want = {"index": torch.arange(len(data)), "target": data.tensors[1]}
    want |= rows_of(logits_of(module, data), data.tensors[1], trials=trials)
    assert list(found) == ["index", "target", "target_log_probability", *COLUMNS]
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-7)


def test_one_file_with_every_sample(tmp_path):
    module = Classifier()
    out = predict(tmp_path, module, loader(DATA), trials=20)
    assert [path.name for path in out.iterdir()] == ["predictions-rank0.parquet"]
    assert_table(table(out), module, DATA, trials=20)
    metadata = parquet.read_schema(out / "predictions-rank0.parquet").metadata
    assert (metadata[b"trials"], metadata[b"rank"], metadata[b"processes"]) == (b"20", b"0", b"1")


def test_a_second_run_is_refused_before_it_begins(module, tmp_path):
    """Its rows took the place of the first run's, without a word. The earlier run may have had more processes."""
    loop = trainer(tmp_path, BoCPredictionWriter(tmp_path / "out"))
    loop.predict(module, loader(DATA), return_predictions=False)
    module.predict_step = lambda batch, batch_idx: pytest.fail("the model ran")
    for name in ("predictions-rank0.parquet", "predictions-rank1.parquet"):
        with pytest.raises(FileExistsError, match=rf"no predictions of another run in .*, got {name}; remove them"):
            loop.predict(module, loader(points(5)))
        (tmp_path / "out" / name).rename(tmp_path / "out" / "predictions-rank1.parquet")
    assert_table(table(tmp_path / "out", "predictions-rank1.parquet"), module, DATA)


@pytest.mark.parametrize(("binary", "message"), [(False, "every row of the first"), (True, "all of the first batch")])
def test_probabilities_are_refused(binary, message, module, tmp_path):
    step = lambda z: torch.linspace(0.01, 0.99, len(z)) if binary else z.softmax(-1)  # noqa: E731
    module.predict_step = lambda batch, batch_idx: step(module(batch[0]))
    with pytest.raises(ValueError, match=rf"got probabilities \({message}.*; give logits=, where"):
        predict(tmp_path, module, loader(DATA), binary=binary)
    assert not any((tmp_path / "out").glob("*"))


def test_columns_of_a_test(module, tmp_path):
    test = ConformalTest().calibrate(logits_of(module, points(60, 5)))
    out, logits = predict(tmp_path, module, loader(DATA), conformal_test=test, alpha=0.2), logits_of(module, DATA)
    found = table(out)
    assert list(found) == ["index", "target", "target_log_probability", *COLUMNS, "p_in_distribution", "review"]
    torch.testing.assert_close(found["p_in_distribution"], test(logits), rtol=1e-12, atol=0)
    assert torch.equal(found["review"], test.flag(logits, 0.2))
    assert parquet.read_schema(out / "predictions-rank0.parquet").metadata[b"alpha"] == b"0.2"
    found = table(predict(tmp_path / "chosen", module, loader(DATA), columns=["free_gap", "prediction"]))
    assert list(found) == ["index", "target", "free_gap", "prediction"]
    with pytest.raises(ValueError, match="expected a test for the column 'review', got none"):
        BoCPredictionWriter(tmp_path, columns=["review"])


def test_logits_of_a_submodule_or_a_function(module, tmp_path):
    module.predict_step = lambda batch, batch_idx: module(batch[0]).softmax(-1).argmax(-1)
    assert_table(table(predict(tmp_path, module, loader(DATA), logits="model.2")), module, DATA)
    assert not module.model[2]._forward_hooks
    step = lambda outputs, batch, module: (module(batch[0]), None)  # noqa: E731
    assert list(table(predict(tmp_path / "function", module, loader(DATA), logits=step))) == ["index", *COLUMNS]


@pytest.mark.parametrize("mapping", [False, True])
def test_ids_and_shuffled_indices(module, tmp_path, mapping):
    module.predict_step = lambda batch, batch_idx: module(batch["x"] if mapping else batch[0])
    data = [(x, y, f"image {i}") for i, (x, y) in enumerate(DATA)]
    data = [dict(zip(("x", "labels", "path"), row, strict=True)) for row in data] if mapping else data
    batches = DataLoader(data, batch_size=8, sampler=ORDER)
    step = lambda outputs, batch, module: (outputs, batch["labels"] if mapping else batch[1])  # noqa: E731
    for place, logits in enumerate((None, step)):
        out = predict(tmp_path / str(place), module, batches, id="path", logits=logits)
        found = parquet.read_table(out / "predictions-rank0.parquet")
        assert found.column_names == ["index", "path", "target", "target_log_probability", *COLUMNS]
        assert found["path"].to_pylist() == [f"image {i}" for i in ORDER]
        assert table(out)["index"].tolist() == ORDER
        assert torch.equal(table(out)["target"], DATA.tensors[1][ORDER])
    with pytest.raises(ValueError, match=r"expected id as the name of a new column, .*, got 'gap'"):
        BoCPredictionWriter(tmp_path, id="gap")


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_padding_of_a_distributed_sampler_is_left_out(module, tmp_path, shuffle):
    """As `BoCPredictor` does; 37 samples are padded to 39."""
    seen = []
    for rank in range(3):
        sampler = DistributedSampler(DATA, 3, rank, shuffle=shuffle)
        found = table(predict(tmp_path / str(rank), module, DataLoader(DATA, batch_size=4, sampler=sampler)))
        assert torch.equal(found["target"], DATA.tensors[1][found["index"]])
        seen += found["index"].tolist()
    assert sorted(seen) == list(range(37))


@pytest.mark.filterwarnings("ignore:Couldn't infer the batch indices")
def test_several_loaders_of_which_one_has_no_indices(module, tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(DATA)

    out = predict(tmp_path, module, [loader(DATA), DataLoader(Stream(), batch_size=5)])
    assert_table(table(out, "predictions-rank0-loader0.parquet"), module, DATA)
    found = table(out, "predictions-rank0-loader1.parquet")
    assert list(found) == ["target", "target_log_probability", *COLUMNS]
    assert len(found["gap"]) == 37


def test_an_error_leaves_no_file(module, tmp_path):
    module.predict_step = lambda batch, batch_idx: module(batch[0]) if batch_idx < 2 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        predict(tmp_path, module, loader(DATA), logits="model")
    assert not any((tmp_path / "out").iterdir())
    assert not module.model._forward_hooks


def test_paths_that_cannot_be_written_are_refused_before_the_work(module, tmp_path):
    module.predict_step = lambda batch, batch_idx: pytest.fail("the model ran")
    (tmp_path / "out").touch()
    with pytest.raises(NotADirectoryError, match="out"):
        predict(tmp_path, module, loader(DATA))


def test_rows_that_are_no_samples_are_refused(module, tmp_path):
    module.predict_step = lambda batch, batch_idx: torch.zeros(2 * len(batch[0]), 5)
    with pytest.raises(ValueError, match=r"targets of shape \(32,\)"):
        predict(tmp_path, module, loader(DATA))
    with pytest.raises(ValueError, match=r"expected a batch \(x, target, id\).* the key 'path'"):
        predict(tmp_path, Classifier(), loader(DATA), id="path")
