"""The Parquet files that `trainer.predict` leaves."""

import pyarrow.parquet as parquet
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset, SequentialSampler

from tests.lightning.cases import (
    QUIET,
    classifier,
    images,
    loader,
    logits_of,
    perceptron,
    points,
    trainer,
    vit,
)
from torch_boc import ConformalTest
from torch_boc.functional.columns import COLUMNS, sample_columns
from torch_boc.lightning import BoCPredictionWriter

pytestmark = QUIET
DATA = points(37, 2)


def predict(library, folder, module, loaders, **options):
    writer = BoCPredictionWriter(folder / "out", **options)
    trainer(library, folder, writer).predict(module, loaders, return_predictions=False)
    return folder / "out"


def table(path):
    read = parquet.read_table(path)
    return {name: torch.tensor(read[name].to_numpy()) for name in read.column_names}


def assert_table(path, module, data, trials=100):
    want = {"index": torch.arange(len(data)), "target": data.tensors[1]}
    want |= sample_columns(logits_of(module, data), trials=trials)
    found = table(path)
    assert list(found) == ["index", "target", *COLUMNS]
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-12)


def test_one_file_with_every_sample(library, tmp_path):
    module = classifier(library, perceptron())
    out = predict(library, tmp_path, module, loader(DATA), trials=20)
    assert [path.name for path in out.iterdir()] == ["predictions-rank0.parquet"]
    assert_table(out / "predictions-rank0.parquet", module, DATA, trials=20)
    metadata = parquet.read_schema(out / "predictions-rank0.parquet").metadata
    assert (metadata[b"trials"], metadata[b"rank"], metadata[b"processes"]) == (b"20", b"0", b"1")
    predict(library, tmp_path, module, loader(points(5)))  # again, over the old file
    assert len(table(out / "predictions-rank0.parquet")["index"]) == 5


def test_chosen_columns(library, tmp_path):
    module = classifier(library, perceptron())
    out = predict(library, tmp_path, module, loader(DATA), columns=["free_gap", "prediction"])
    found = table(out / "predictions-rank0.parquet")
    assert list(found) == ["index", "target", "free_gap", "prediction"]
    want = sample_columns(logits_of(module, DATA), columns=["free_gap"])["free_gap"]
    torch.testing.assert_close(found["free_gap"], want, rtol=1e-5, atol=1e-12)


def test_columns_of_a_test(library, tmp_path):
    module = classifier(library, perceptron())
    test = ConformalTest().calibrate(logits_of(module, points(60, 5)))
    out = predict(library, tmp_path, module, loader(DATA), test=test, alpha=0.2)
    path, logits = out / "predictions-rank0.parquet", logits_of(module, DATA)
    found = table(path)
    assert list(found) == ["index", "target", *COLUMNS, "p_in_distribution", "review"]
    torch.testing.assert_close(found["p_in_distribution"], test(logits), rtol=1e-12, atol=0)
    assert torch.equal(found["review"], test.flag(logits, 0.2))
    assert parquet.read_schema(path).metadata[b"alpha"] == b"0.2"
    with pytest.raises(ValueError, match="expected a test for the column 'review', got none"):
        BoCPredictionWriter(tmp_path, columns=["review"])
    with pytest.raises(ValueError, match="expected held-out samples"):
        BoCPredictionWriter(tmp_path, test=ConformalTest())


def test_vit_and_several_loaders(library, tmp_path):
    module, sets = classifier(library, vit()), (images(9), images(5, 1))
    out = predict(library, tmp_path, module, [loader(data) for data in sets])
    for place, data in enumerate(sets):
        assert_table(out / f"predictions-rank0-loader{place}.parquet", module, data)


def test_logits_of_a_submodule_or_a_function(library, tmp_path):
    module = classifier(library, perceptron())
    module.predict_step = lambda batch, batch_idx: module(batch[0]).softmax(-1).argmax(-1)
    out = predict(library, tmp_path, module, loader(DATA), logits="model.2")
    assert_table(out / "predictions-rank0.parquet", module, DATA)
    assert not module.model[2]._forward_hooks
    step = lambda outputs, batch, module: (module(batch[0]), None)  # noqa: E731
    out = predict(library, tmp_path, module, loader(DATA), logits=step)
    assert list(table(out / "predictions-rank0.parquet")) == ["index", *COLUMNS]


def test_shuffled_indices_find_their_samples(library, tmp_path):
    module = classifier(library, perceptron())
    order = torch.randperm(37, generator=torch.Generator().manual_seed(3)).tolist()
    out = predict(library, tmp_path, module, DataLoader(DATA, batch_size=8, sampler=order))
    found = table(out / "predictions-rank0.parquet")
    assert found["index"].tolist() == order
    assert torch.equal(found["target"], DATA.tensors[1][order])


class Reusing(BatchSampler):
    """Fills one list again and again."""

    def __iter__(self):
        indices = []
        for batch in super().__iter__():
            indices[:] = batch
            yield indices


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_sampler_that_reuses_one_list(library, tmp_path, workers):
    """Right where each batch is fetched when it is needed, and refused where the list runs ahead of the batches."""
    module = classifier(library, perceptron())
    batches = DataLoader(DATA, batch_sampler=Reusing(SequentialSampler(DATA), 8, drop_last=False), num_workers=workers)
    if not workers:
        out = predict(library, tmp_path, module, batches)
        assert_table(out / "predictions-rank0.parquet", module, DATA)
        return
    with pytest.raises(ValueError, match=r"yields a new list for each batch.*let it yield list\(batch\)"):
        predict(library, tmp_path, module, batches)
    assert not (tmp_path / "out").exists()


class Named(Dataset):
    """Samples with a name, as a tuple or as a mapping."""

    def __init__(self, mapping):
        self.mapping = mapping

    def __len__(self):
        return len(DATA)

    def __getitem__(self, i):
        x, y = DATA[i]
        return {"x": x, "labels": y, "path": f"image {i}"} if self.mapping else (x, y, f"image {i}")


@pytest.mark.parametrize("mapping", [False, True])
def test_ids(library, tmp_path, mapping):
    module = classifier(library, perceptron())
    module.predict_step = lambda batch, batch_idx: module(batch["x"] if mapping else batch[0])
    order = torch.randperm(37, generator=torch.Generator().manual_seed(3)).tolist()
    batches = DataLoader(Named(mapping), batch_size=8, sampler=order)
    out = predict(library, tmp_path, module, batches, id="path")
    found = parquet.read_table(out / "predictions-rank0.parquet")
    assert found.column_names == ["index", "path", "target", *COLUMNS]
    assert found["path"].to_pylist() == [f"image {i}" for i in order]
    assert torch.equal(torch.tensor(found["target"].to_numpy()), DATA.tensors[1][order])
    step = lambda outputs, batch, module: (outputs, batch["labels"] if mapping else batch[1])  # noqa: E731
    out = predict(library, tmp_path, module, batches, id="path", logits=step)
    assert parquet.read_schema(out / "predictions-rank0.parquet").names == ["index", "path", "target", *COLUMNS]


def test_bad_ids(library, tmp_path):
    with pytest.raises(ValueError, match=r"expected id as the name of a new column, .*, got 'gap'"):
        BoCPredictionWriter(tmp_path, id="gap")
    with pytest.raises(ValueError, match=r"expected a batch \(x, target, id\).* the key 'path'"):
        predict(library, tmp_path, classifier(library, perceptron()), loader(DATA), id="path")


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_padding_of_a_distributed_sampler_is_left_out(library, tmp_path, shuffle):
    """As `BoCPredictor` does; 37 samples are padded to 39."""
    module, seen = classifier(library, perceptron()), []
    for rank in range(3):
        sampler = DistributedSampler(DATA, 3, rank, shuffle=shuffle)
        out = predict(library, tmp_path / str(rank), module, DataLoader(DATA, batch_size=4, sampler=sampler))
        found = table(out / "predictions-rank0.parquet")
        assert torch.equal(found["target"], DATA.tensors[1][found["index"]])
        seen += found["index"].tolist()
    assert sorted(seen) == list(range(37))


@pytest.mark.filterwarnings("ignore:Couldn't infer the batch indices")
def test_stream_without_indices(library, tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(DATA)

    module = classifier(library, perceptron())
    out = predict(library, tmp_path, module, [loader(DATA), DataLoader(Stream(), batch_size=5)])
    assert "index" in table(out / "predictions-rank0-loader0.parquet")
    found = table(out / "predictions-rank0-loader1.parquet")
    assert list(found) == ["target", *COLUMNS]
    assert len(found["gap"]) == 37


def test_error_leaves_what_was_there(library, tmp_path):
    module = classifier(library, perceptron())
    out = predict(library, tmp_path, module, loader(DATA), logits="model")
    before = (out / "predictions-rank0.parquet").read_bytes()
    module.predict_step = lambda batch, batch_idx: module(batch[0]) if batch_idx < 2 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        predict(library, tmp_path, module, loader(DATA), logits="model")
    assert [path.name for path in out.iterdir()] == ["predictions-rank0.parquet"]
    assert (out / "predictions-rank0.parquet").read_bytes() == before
    assert not module.model._forward_hooks


def test_files_of_more_processes_are_not_mixed_with(library, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "predictions-rank1.parquet").touch()
    with pytest.raises(FileExistsError, match=r"got predictions-rank1.parquet; remove them or choose"):
        predict(library, tmp_path, classifier(library, perceptron()), loader(DATA))


@pytest.mark.parametrize("place", ["out", "out/predictions-rank0.parquet"])
def test_a_path_that_cannot_be_a_file_is_refused_before_the_work(library, tmp_path, place):
    module = classifier(library, perceptron())
    module.predict_step = lambda batch, batch_idx: pytest.fail("the model ran")
    if place == "out":
        (tmp_path / place).touch()
    else:
        (tmp_path / place).mkdir(parents=True)
    with pytest.raises((IsADirectoryError, NotADirectoryError), match=place):
        predict(library, tmp_path, module, loader(DATA))


def test_rows_that_are_no_samples_are_refused(library, tmp_path):
    module = classifier(library, perceptron())
    module.predict_step = lambda batch, batch_idx: torch.zeros(len(batch[0]), 5, 3)
    with pytest.raises(ValueError, match=r"expected logits of shape \(N, C\)"):
        predict(library, tmp_path, module, loader(DATA))
    module.predict_step = lambda batch, batch_idx: torch.zeros(2 * len(batch[0]), 5)
    with pytest.raises(ValueError, match="each of the 16 samples of the batch, got 32"):
        predict(library, tmp_path, module, loader(DATA))


def test_single_logits(library, tmp_path):
    module = classifier(library, torch.nn.Linear(8, 1))
    with pytest.raises(TypeError, match="binary=True takes a single logit"):
        predict(library, tmp_path, module, loader(DATA))
    assert not list((tmp_path / "out").glob("*"))
    found = table(predict(library, tmp_path, module, loader(DATA), binary=True) / "predictions-rank0.parquet")
    logits = logits_of(module, DATA)[:, 0]
    assert torch.equal(found["prediction"], (logits > 0).long())
    torch.testing.assert_close(found["confidence"].float(), logits.abs().sigmoid(), rtol=1e-5, atol=0)
