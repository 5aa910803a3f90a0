"""Every format gives the same LogitSet; what cannot be one is a line that says why."""

import pickle
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import torch
from pyarrow import csv, parquet

from torch_boc.data.files import read_logits

ROWS, CLASSES = 7, 3


@pytest.fixture
def arrays():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(ROWS, CLASSES, generator=generator, dtype=torch.float64)
    logits[2, 1] = -torch.inf
    return {"logits": logits, "target": torch.arange(ROWS) % CLASSES, "knn": logits.amax(1) / 3}


def columns(arrays, prefix="logit_"):
    logits = {f"{prefix}{i}": arrays["logits"][:, i].numpy() for i in range(CLASSES)}
    return pa.table({**logits, **{name: arrays[name].numpy() for name in ("target", "knn")}})


def lists(arrays, kind):
    logits = pa.array(arrays["logits"].tolist(), type=kind)
    return pa.table({"logits": logits, **{name: arrays[name].numpy() for name in ("target", "knn")}})


def numpy_arrays(arrays):
    return {name: x.numpy() for name, x in arrays.items()}


def big_endian(arrays):
    return {name: x.numpy().astype(x.numpy().dtype.newbyteorder(">")) for name, x in arrays.items()}


def shuffled(table):
    return table.select(table.column_names[::-1])


WRITERS = {
    "a.npz": lambda path, x: np.savez(path, **numpy_arrays(x)),
    "compressed.npz": lambda path, x: np.savez_compressed(path, **numpy_arrays(x)),
    "foreign.npz": lambda path, x: np.savez(path, **big_endian(x)),
    "other_name.npz": lambda path, x: np.savez(
        path, **{{"logits": "out"}.get(k, k): v for k, v in numpy_arrays(x).items()}
    ),
    "labels.npz": lambda path, x: np.savez(
        path, **{{"target": "labels"}.get(k, k): v for k, v in numpy_arrays(x).items()}
    ),
    "a.safetensors": lambda path, x: safetensors.torch.save_file(x, path),
    "a.pt": lambda path, x: torch.save(x, path),
    "A.PTH": lambda path, x: torch.save({**x, "target": x["target"].tolist()}, path),
    "legacy.pt": lambda path, x: torch.save(x, path, _use_new_zipfile_serialization=False),
    "a.parquet": lambda path, x: parquet.write_table(columns(x), path),
    "bare.parquet": lambda path, x: parquet.write_table(columns(x, ""), path),
    "pandas.parquet": lambda path, x: columns(x).to_pandas().rename(index=lambda i: i + 5).to_parquet(path),
    "lists.parquet": lambda path, x: parquet.write_table(lists(x, pa.list_(pa.float64())), path),
    "fixed.parquet": lambda path, x: parquet.write_table(lists(x, pa.list_(pa.float64(), CLASSES)), path),
    "a.csv": lambda path, x: csv.write_csv(columns(x), path),
    "shuffled.csv": lambda path, x: csv.write_csv(shuffled(columns(x)), path),
    "pandas.csv": lambda path, x: columns(x, "").to_pandas().to_csv(path),
    "marked.csv": lambda path, x: columns(x).to_pandas().to_csv(path, index=False, encoding="utf-8-sig"),
}


@pytest.mark.parametrize("file", WRITERS)
def test_every_format_gives_the_same(tmp_path, arrays, file):
    WRITERS[file](tmp_path / file, arrays)
    data = read_logits(tmp_path / file)
    assert data.name == (tmp_path / file).stem
    assert torch.equal(data.logits, arrays["logits"])
    assert data.logits.dtype == torch.float64
    assert torch.equal(data.target, arrays["target"])
    assert list(data.columns) == ["knn"]
    assert torch.equal(data.columns["knn"], arrays["knn"])
    assert read_logits(str(tmp_path / file), "test").name == "test"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_precision_stays(tmp_path, arrays, dtype):
    logits = arrays["logits"].to(dtype)
    np.save(tmp_path / "a.npy", logits.numpy())
    torch.save(logits, tmp_path / "a.pt")
    parquet.write_table(columns({**arrays, "logits": logits}), tmp_path / "a.parquet")
    for path in tmp_path.iterdir():
        assert torch.equal(read_logits(path).logits, logits)
        assert read_logits(path).logits.dtype == dtype


def test_bare_logits_and_pairs(tmp_path, arrays):
    logits, target = arrays["logits"], arrays["target"]
    np.save(tmp_path / "bare.npy", logits.numpy())
    torch.save(logits.requires_grad_(), tmp_path / "bare.pt")
    torch.save((logits.detach(), target), tmp_path / "pair.pt")
    torch.save([logits.detach(), target.tolist()], tmp_path / "list.pth")
    np.savez(tmp_path / "pair.npz", logits.detach().numpy(), target.numpy())
    for path in tmp_path.iterdir():
        data = read_logits(path)
        assert torch.equal(data.logits, logits.detach())
        assert data.logits.requires_grad is False
        assert data.columns == {}
        assert data.target is None if path.stem == "bare" else torch.equal(data.target, target)


def test_bfloat16_and_integers(tmp_path):
    logits = torch.tensor([[1.0, 2.0], [3.0, 0.5]], dtype=torch.bfloat16)
    safetensors.torch.save_file({"logits": logits}, tmp_path / "half.safetensors")
    assert torch.equal(read_logits(tmp_path / "half.safetensors").logits, logits)
    torch.save(logits.to(torch.float8_e5m2), tmp_path / "byte.pt")
    assert torch.equal(read_logits(tmp_path / "byte.pt").logits, logits.float())
    np.savez(tmp_path / "whole.npz", logits=np.array([[1, 2], [3, 4]]), target=np.array([0.0, 1.0]))
    data = read_logits(tmp_path / "whole.npz")
    assert data.logits.dtype == torch.float64
    assert data.target.tolist() == [0, 1]


def test_numbers_of_rows_are_no_scores(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **numpy_arrays(arrays), index=np.arange(ROWS))
    assert list(read_logits(tmp_path / "a.npz").columns) == ["knn"]
    (tmp_path / "a.csv").write_text("index,logit_0,logit_1,energy\n0,1,2, 3.5\n1,2,1,4\n")
    assert {k: v.tolist() for k, v in read_logits(tmp_path / "a.csv").columns.items()} == {"energy": [3.5, 4.0]}


def test_whole_numbers_that_turn_into_fractions_late_in_a_csv_file(tmp_path):
    """Arrow would guess integers from the first megabyte."""
    lines = ["logit_0,logit_1,score,target"] + ["1,-3,2,1"] * 200_000 + ["0.5,0,0.25,0"]
    (tmp_path / "long.csv").write_text("\n".join(lines))
    data = read_logits(tmp_path / "long.csv")
    assert data.logits[-1].tolist() == [0.5, 0.0]
    assert data.columns["score"][-1].item() == 0.25


def test_a_pickle_is_not_opened(tmp_path):
    """Each of these would create a file if it were."""

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    for file in ("a.pkl", "a.npy", "a.npz", "a.safetensors", "a.pt"):
        (tmp_path / file).write_bytes(pickle.dumps({"logits": Trap()}, protocol=2))
    np.savez(tmp_path / "objects.npz", logits=np.array([Trap()], dtype=object))
    np.save(tmp_path / "objects.npy", np.array([Trap()], dtype=object))
    torch.save({"logits": Trap()}, tmp_path / "objects.pt")
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(ValueError, match=r"pickle|damaged"):
            read_logits(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.filterwarnings("ignore:Validating sparse tensor:UserWarning")
def test_sparse_logits_are_refused(tmp_path):
    torch.save(torch.eye(3).to_sparse(), tmp_path / "a.pt")
    with pytest.raises(
        ValueError, match=r"a\.pt: expected a plain array of numbers alone, got \(3 x 3, float32 sparse_coo"
    ):
        read_logits(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("file", "module", "remedy"),
    [
        ("a.npz", "numpy", r"torch-boc\[eval\]"),
        ("a.safetensors", "safetensors.torch", r"torch-boc\[eval\]"),
        ("a.csv", "pyarrow", r"torch-boc\[eval\]"),
    ],
)
def test_a_missing_library_is_named_with_the_file(tmp_path, arrays, monkeypatch, file, module, remedy):
    WRITERS[file](tmp_path / file, arrays)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"{file}: .*{remedy}"):
        read_logits(tmp_path / file)


def test_what_the_system_refuses_is_raised_as_it_is(tmp_path, arrays, monkeypatch):
    WRITERS["a.npz"](tmp_path / "a.npz", arrays)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", "a.npz")

    monkeypatch.setattr(np, "load", refuse)
    with pytest.raises(PermissionError, match=r"a\.npz"):
        read_logits(tmp_path / "a.npz")


def test_other_files_in_an_archive_are_left_out(tmp_path, arrays):
    WRITERS["a.npz"](tmp_path / "a.npz", arrays)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("README.txt", "how they were made")
    with pytest.warns(UserWarning, match=r"left out README\.txt \(a bytes\)"):
        assert torch.equal(read_logits(tmp_path / "a.npz").logits, arrays["logits"])
