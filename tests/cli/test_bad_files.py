"""A file that cannot be used is one line on stderr that names it and says why, and exit code 2."""

import gzip
import pickle

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import torch
from pyarrow import parquet

GOOD = {"logits": np.arange(12.0).reshape(4, 3), "target": np.array([0, 1, 2, 0])}


def npz(**arrays):
    return lambda path: np.savez(path, **{**GOOD, **arrays})


def text(content):
    return lambda path: path.write_text(content)


def table(**columns):
    return lambda path: parquet.write_table(pa.table(columns), path)


def saved(value):
    return lambda path: torch.save(value, path)


def cut(write, keep=0.6):
    """The beginning of a good file."""

    def write_part(path):
        write(path)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])

    return write_part


def flipped(write):
    """A good file with a damaged byte in the middle of the data."""

    def write_damaged(path):
        write(path)
        content = bytearray(path.read_bytes())
        content[content.index(np.float64(7).tobytes())] ^= 255
        path.write_bytes(bytes(content))

    return write_damaged


def tensors(value=None):
    return lambda path: safetensors.torch.save_file(value or {"logits": torch.ones(200, 3)}, path)


GOOD_TABLE = table(**{f"logit_{i}": np.arange(4.0) for i in range(3)})
SHARES = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.2, 0.2, 0.6], [0.1, 0.1, 0.8]])
NAN = np.where(np.arange(12).reshape(4, 3) == 7, np.nan, 1.0)

BAD = {
    # shapes and values
    "flat.npz": (npz(logits=np.ones(4)), "expected logits of shape (N, C) with at least one row, got shape (4,)"),
    "deep.npy": (lambda path: np.save(path, np.ones((2, 3, 4))), "got shape (2, 3, 4)"),
    "single.npy": (lambda path: np.save(path, np.ones((5, 1))), "at least 2 classes"),
    "no_rows.npz": (npz(logits=np.ones((0, 3)), target=np.ones(0, int)), "at least one row, got shape (0, 3)"),
    "nan.npz": (npz(logits=NAN), "in 1 of 4 rows, first in row 2; leave these rows out"),
    "inf.npz": (npz(logits=np.full((4, 3), np.inf)), "in 4 of 4 rows"),
    "label.npz": (npz(target=np.array([0, 1, 3, 0])), "expected targets in [0, 3), got 1 outside, such as 3"),
    "minus.npz": (npz(target=np.array([0, -1, 2, 0])), "such as -1"),
    "half.npz": (npz(target=np.array([0.5, 1, 2, 0])), "integer class indices"),
    "short.npz": (npz(target=np.array([0, 1])), "expected target of shape (4,)"),
    "column.npz": (npz(knn=np.ones(3)), "expected column 'knn' as 4 finite numbers, got shape (3,)"),
    "gap.npz": (npz(knn=NAN[:, 1]), "'knn' as 4 finite numbers, got shape (4,) with NaN"),
    "complex.npz": (
        npz(logits=np.ones((4, 3), complex)),
        "expected a plain array of numbers in 'logits', got (4 x 3, co",
    ),
    "words.npz": (
        npz(logits=np.array([["a", "b"]])),
        "expected a plain array of numbers in 'logits', got (1 x 2, <U1)",
    ),
    # which array
    "nothing.npz": (lambda path: np.savez(path), "expected an array 'logits' of shape (N, C), got nothing"),
    "other.npz": (lambda path: np.savez(path, a=np.ones(3), b=np.ones(2)), "got a (3, float64), b (2, float64)"),
    "several.npz": (lambda path: np.savez(path, a=np.ones((2, 3)), b=np.ones((2, 3))), "call the right one 'logits'"),
    "two_targets.npz": (npz(y=GOOD["target"]), "got target and y"),
    "weights.pt": (saved({f"w{i}": torch.ones(2, 2) for i in range(99)}), "and 91 more"),
    "list.pt": (saved([torch.ones(3)] * 5), "got a list of 5"),
    "number.pt": (saved(3), "expected a tensor, a pair (logits, target) or a mapping with 'logits', got a int"),
    "other.safetensors": (tensors({"w": torch.ones(3)}), "got w (3, float32)"),
    "netcal.npz": (
        lambda path: np.savez(path, predictions=SHARES, ground_truth=GOOD["target"]),
        "expected logits or log-probabilities, got probabilities (every row is non-negative and sums to 1); give the",
    ),
    "probs.npz": (lambda path: np.savez(path, probs=SHARES), "--probabilities on the command line"),
    "probs.pt": (saved({"probabilities": torch.full((4, 3), 1 / 3)}), "--probabilities on the command line"),
    "probs.csv": (text("prob_0,prob_1\n.5,.5\n.25,.75\n"), "--probabilities on the command line"),
    "probs.parquet": (table(prob_0=[0.5], prob_1=[0.5]), "--probabilities on the command line"),
    "named.npz": (npz(target=np.array(list("abca"))), "expected numbers of classes in 'target', got text such as 'a'"),
    "onehot.npz": (npz(target=np.eye(3)[[0, 1, 2, 0]]), "expected target"),
    # pickles
    "a.pkl": (lambda path: path.write_bytes(pickle.dumps(GOOD)), "pickles are refused"),
    "b.pickle": (lambda path: path.write_bytes(pickle.dumps(GOOD)), "pickles are refused"),
    "renamed.npy": (lambda path: path.write_bytes(pickle.dumps(GOOD)), "it is a pickle, whatever its name says"),
    "renamed.pt": (lambda path: path.write_bytes(pickle.dumps(GOOD)), "it is a pickle, whatever its name says"),
    "renamed.csv": (lambda path: path.write_bytes(pickle.dumps(GOOD)), "it is a pickle, whatever its name says"),
    "renamed.parquet": (lambda path: path.write_bytes(pickle.dumps(GOOD)), "it is a pickle, whatever its name says"),
    "objects.npz": (npz(names=np.array([None, "a"])), "array 'names' holds Python objects; pickles are refused"),
    "objects.npy": (lambda path: np.save(path, np.array([None, 1])), "the array holds Python objects; pickles"),
    "model.pt": (saved({"logits": torch.ones(2, 3), "model": torch.nn.ReLU()}), "save tensors: torch.save("),
    # damaged files
    "cut.npz": (cut(npz()), "damaged or cut off"),
    "flipped.npz": (flipped(npz()), "damaged or cut off"),
    "cut.npy": (cut(lambda path: np.save(path, GOOD["logits"])), "damaged or cut off"),
    "cut.safetensors": (cut(tensors()), "damaged or cut off"),
    "cut.pt": (cut(saved(torch.ones(200, 3))), "damaged or cut off: the end of the archive is missing"),
    "cut_old.pt": (
        cut(lambda path: torch.save(torch.ones(99, 3), path, _use_new_zipfile_serialization=False)),
        "cut off",
    ),
    "cut.parquet": (cut(GOOD_TABLE), "damaged or cut off"),
    "zeros.parquet": (lambda path: path.write_bytes(bytes(99)), "damaged or cut off"),
    "noise.npz": (lambda path: path.write_bytes(b"noise"), "it does not begin like a zip archive"),
    "noise.npy": (lambda path: path.write_bytes(b"noise"), "it does not begin like an array"),
    "noise.pt": (lambda path: path.write_bytes(b"noise"), "it was not written by torch.save"),
    "noise.csv": (lambda path: path.write_bytes(bytes(range(128, 256))), "in UTF-8, got the byte 0x80; save"),
    "packed.csv": (lambda path: path.write_bytes(gzip.compress(b"logit_0,logit_1\n1,2\n")), "without compression"),
    **{
        f"empty{kind}": (text(""), "got an empty file")
        for kind in (".npz", ".npy", ".safetensors", ".pt", ".parquet", ".csv")
    },
    # tables
    "header.csv": (text("logit_0,logit_1\n"), "at least one row, got shape (0, 2)"),
    "word.csv": (text("logit_0,logit_1\n1,2\n3,x\n"), "expected a number in line 3, column 'logit_1', got 'x'"),
    "word_target.csv": (text("logit_0,logit_1,y\n1,2,cat\n"), "expected a number in line 2, column 'y', got 'cat'"),
    "hole.csv": (text("logit_0,logit_1\n1,2\n3,\n"), "in 1 of 2 rows, first in row 1"),
    "hole_score.csv": (text("logit_0,logit_1,knn\n1,2,3\n3,4,\n"), "column 'knn' as 2 finite numbers"),
    "ragged.csv": (text("logit_0,logit_1\n1,2\n3\n"), "expected 2 cells in line 3, as in the header, got 1"),
    "headless.csv": (
        text("1.5,2.5\n3,4\n"),
        "expected columns logit_0, logit_1, ... (or 0, 1, ...; or 'logits' of lists), g",
    ),
    "semicolons.csv": (
        text("logit_0;logit_1;target\n1,5;2,5;0\n"),
        "expected commas between the columns, got semicolons: 'logit_0;logit_1;target'; save it with commas",
    ),
    "tabs.csv": (text("logit_0\tlogit_1\n1\t2\n"), "expected commas between the columns, got tabs: "),
    "missing.csv": (text("logit_0,logit_2\n1,2\n"), "expected columns logit_0 to logit_2, got 2 of them: logit_1 is m"),
    "both.csv": (text("logit_0,logit_1,0,1\n1,2,3,4\n"), "got both logit_0, logit_1, ... and 0, 1, ..."),
    "twice.csv": (text("logit_0,logit_1,logit_1\n1,2,3\n"), "got 'logit_1' twice"),
    "zeros.csv": (
        text("logit_0,logit_00,logit_1\n1,2,3\n"),
        "expected one column for each class, got 'logit_0' and 'logit_00' for class 0; rename one",
    ),
    "cases.csv": (text("logit_0,LOGIT_0,logit_1\n1,2,3\n"), "got 'logit_0' and 'LOGIT_0' for class 0"),
    "spaces.csv": (text("logit_0, logit_0,logit_1\n1,2,3\n"), "names, got 'logit_0' and ' logit_0'; rename one"),
    "targets.csv": (text("logit_0,logit_1,y, y\n1,2,0,1\n"), "names, got 'y' and ' y'; rename one"),
    "labels.csv": (text("logit_0,logit_1,Label,ground_truth\n1,2,0,1\n"), "got Label and ground_truth"),
    "gaps.csv": (text("logit_0,logit_2,logit_5\n1,2,3\n"), "got 3 of them: 3 are missing, such as logit_1"),
    "one.csv": (text("logit_1,logit_2\n1,2\n"), "expected columns logit_0 to logit_2, got 2 of them: logit_0 is m"),
    "huge.csv": (text("logit_0,logit_99999999999\n1,2\n"), "got 2 of them: 99999999998 are missing"),
    "prob_gap.csv": (text("prob_0,prob_2\n.5,.5\n"), "expected columns prob_0 to prob_2, got 2"),
    "classes.csv": (text("cat,dog,label\n1,2,0\n"), "if columns have the names of the classes, name the classes in"),
    "latin.csv": (
        lambda path: path.write_bytes("logit_0,logit_1,name\n1,2,café\n".encode("latin-1")),
        "expected text in UTF-8, got the byte 0xe9; save it as CSV in UTF-8",
    ),
    "quoted.csv": (text('logit_0,logit_1,note\n1,2,"a\nb"\n3,x,c\n'), "in line 4, column 'logit_1', got 'x'"),
    "zeros_too.parquet": (table(logit_0=[1.0], logit_00=[2.0], logit_1=[3.0]), "'logit_0' and 'logit_00' for class 0"),
    "gaps.parquet": (table(logit_0=[1.0], logit_2=[2.0]), "got 2 of them: logit_1 is missing"),
    "cells.csv": (text("logits,target\n1,2\n"), "a CSV cell holds one number"),
    "words.parquet": (table(logit_0=["a"], logit_1=[1.0]), "expected numbers in column 'logit_0', got string"),
    "names.parquet": (
        table(logit_0=[1.0], logit_1=[1.0], label=["cat"]),
        "expected numbers of classes in 'label', got text such as 'cat'; name the classes in their order with",
    ),
    "ragged.parquet": (
        table(logits=[[1.0, 2.0], [1.0]]),
        "expected as many logits in every row, got lists of length 2, 1",
    ),
    "none.parquet": (table(logits=[[1.0, 2.0], None]), "got lists of length 2, none"),
    "plain.parquet": (
        table(logits=[1.0, 2.0]),
        "expected a list of numbers in each row of column 'logits', got double",
    ),
    "rowless.parquet": (
        table(logits=pa.array([], pa.list_(pa.float64()))),
        "expected at least one row of logits, got none",
    ),
    "others.parquet": (table(confidence=[1.0]), "got confidence"),
    # no such file
    "unknown.txt": (text("1 2 3"), "expected a file that ends in .npz, .npy, "),
    "no_ending": (text("1 2 3"), "got 'no ending'"),
    "folder.npz": (lambda path: path.mkdir(), "expected a file, got a folder"),
    "absent.npz": (lambda path: None, "no such file"),
}


@pytest.mark.parametrize("file", BAD)
def test_a_bad_file_is_one_line(run, tmp_path, file):
    write, reason = BAD[file]
    write(tmp_path / file)
    code, out, err = run("probe", tmp_path / file, "-o", tmp_path / "out.parquet")
    assert code == 2
    assert out == ""
    assert err.startswith(f"torch-boc: error: {tmp_path / file}: ")
    assert err.count("\n") == 1
    assert reason in err
    assert not (tmp_path / "out.parquet").exists()
