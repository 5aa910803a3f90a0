"""Which arrays of a file are taken, and what is said of the others."""

import time

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import torch
from pyarrow import csv, parquet

from torch_boc.evaluation import read_logits

LOGITS = np.array([[2.0, -1.0, 0.5], [0.25, 3.0, -2.0], [1.0, 0.0, 4.0]])
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
TARGET = np.array([0, 1, 2])
CLASSES = ["cat", "dog", "sea lion"]


def as_tensors(arrays):
    return {name: torch.from_numpy(np.array(x)) for name, x in arrays.items()}


def as_table(arrays):
    """Arrays as columns, those with two axes as lists."""
    return pa.table({name: x.tolist() if x.ndim == 2 else x for name, x in arrays.items()})


SAVE = {
    ".npz": lambda path, x: np.savez(path, **x),
    ".pt": lambda path, x: torch.save(as_tensors(x), path),
    ".safetensors": lambda path, x: safetensors.torch.save_file(as_tensors(x), path),
}


@pytest.mark.parametrize("kind", SAVE)
@pytest.mark.parametrize("logits", ["logits", "out", "outputs", "Logits", "scores", "predictions"])
@pytest.mark.parametrize("target", ["labels", "label", "y", "targets", "ground_truth", "y_true", "Label"])
def test_the_usual_names_are_understood_in_silence(tmp_path, kind, logits, target):
    SAVE[kind](tmp_path / f"a{kind}", {logits: LOGITS, target: TARGET})
    data = read_logits(tmp_path / f"a{kind}")
    assert torch.equal(data.logits, torch.from_numpy(LOGITS))
    assert data.target.tolist() == [0, 1, 2]
    assert data.columns == {}


@pytest.mark.parametrize("name", ["probs", "probabilities", "predictions", "scores", "softmax"])
def test_probabilities_under_their_usual_names(tmp_path, name):
    np.savez(tmp_path / "a.npz", **{name: PROBABILITIES, "ground_truth": TARGET})
    with pytest.raises(ValueError, match=r"a\.npz: expected logits .*, got probabilities.*--probabilities"):
        read_logits(tmp_path / "a.npz")
    data = read_logits(tmp_path / "a.npz", from_probabilities=True)
    torch.testing.assert_close(data.logits, torch.from_numpy(np.log(PROBABILITIES)), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", SAVE)
def test_where_both_are_there_the_option_chooses_and_the_other_is_named(tmp_path, kind):
    SAVE[kind](tmp_path / f"a{kind}", {"logits": LOGITS, "probs": PROBABILITIES, "y": TARGET})
    with pytest.warns(UserWarning, match=r"'logits' as logits, 'y' as targets; left out probs \(3 x 3, float64\)"):
        assert torch.equal(read_logits(tmp_path / f"a{kind}").logits, torch.from_numpy(LOGITS))
    with pytest.warns(UserWarning, match=r"'probs' as probabilities, .*; left out logits"):
        assert read_logits(tmp_path / f"a{kind}", from_probabilities=True).from_probabilities


MORE = {
    "features": np.zeros((3, 2, 2)),
    "seed": np.array(3),
    "predicted": TARGET,
    "prediction": TARGET,
    "ok": np.ones(3, bool),
}


@pytest.mark.parametrize("kind", SAVE)
def test_what_is_left_out_is_listed_with_what_is_taken(tmp_path, kind):
    SAVE[kind](tmp_path / f"a{kind}", {"logits": LOGITS, "target": TARGET, "knn": LOGITS[:, 0], **MORE})
    with pytest.warns(UserWarning, match="left out") as said:
        data = read_logits(tmp_path / f"a{kind}")
    assert list(data.columns) == ["knn"]
    (message,) = (str(x.message) for x in said)
    assert message.startswith(
        f"{tmp_path / f'a{kind}'}: took 'logits' as logits, 'target' as targets, 'knn' as a score"
    )
    assert all(f"{name} (" in message.partition("left out")[2] for name in MORE)


def test_what_is_taken_under_an_unknown_name_is_said(tmp_path):
    np.savez(tmp_path / "a.npz", embedding=LOGITS)
    with pytest.warns(UserWarning, match="took 'embedding' as logits; no targets"):
        read_logits(tmp_path / "a.npz")


def test_one_of_several_arrays_with_a_usual_name(tmp_path):
    np.savez(tmp_path / "a.npz", features=LOGITS + 1, predictions=LOGITS, ground_truth=TARGET)
    with pytest.warns(UserWarning, match="left out features"):
        assert torch.equal(read_logits(tmp_path / "a.npz").logits, torch.from_numpy(LOGITS))


def test_a_column_vector_of_targets(tmp_path):
    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=TARGET.reshape(3, 1))
    assert read_logits(tmp_path / "a.npz").target.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_text_and_second_families_of_columns_are_listed(tmp_path, kind):
    columns = {f"{name}_{i}": x[:, i] for name, x in (("logit", LOGITS), ("prob", PROBABILITIES)) for i in range(3)}
    table = pa.table({**columns, "Label": TARGET, "file": ["a", "b", "c"], "index": TARGET})
    {".csv": csv.write_csv, ".parquet": parquet.write_table}[kind](table, tmp_path / f"a{kind}")
    with pytest.warns(UserWarning, match=r"'Label' as targets; left out probabilities .*, file \(text\)$"):
        data = read_logits(tmp_path / f"a{kind}")
    assert torch.equal(data.logits, torch.from_numpy(LOGITS))
    assert data.columns == {}
    with pytest.warns(UserWarning, match=r"left out logits .*, file \(text\)$"):
        data = read_logits(tmp_path / f"a{kind}", from_probabilities=True)
    torch.testing.assert_close(data.logits, torch.from_numpy(np.log(PROBABILITIES)), rtol=1e-9, atol=0)


class TestClasses:
    """Columns under the names of the classes, and targets that are such names."""

    def save(self, path, target, names=CLASSES):
        table = pa.table({**{name: LOGITS[:, i] for i, name in reversed(list(enumerate(names)))}, "label": target})
        {".csv": csv.write_csv, ".parquet": parquet.write_table}[path.suffix](table, path)

    @pytest.mark.parametrize("kind", [".csv", ".parquet"])
    @pytest.mark.parametrize("target", [["cat", "dog", "sea lion"], [0, 1, 2]])
    @pytest.mark.parametrize("prefix", ["", "logit_"])
    def test_columns_and_targets(self, tmp_path, kind, target, prefix):
        self.save(tmp_path / f"a{kind}", target, [prefix + name for name in CLASSES])
        data = read_logits(tmp_path / f"a{kind}", classes=CLASSES)
        assert torch.equal(data.logits, torch.from_numpy(LOGITS))
        assert data.target.tolist() == [0, 1, 2]
        with pytest.raises(ValueError, match=r"expected columns logit_0, .*got.*cat.*--classes"):
            read_logits(tmp_path / f"a{kind}")

    @pytest.mark.parametrize("kind", [".npz", ".pt", ".csv"])
    def test_names_of_targets_beside_plain_logits(self, tmp_path, kind):
        target = ["dog", "cat", "sea lion"]
        columns = {f"logit_{i}": LOGITS[:, i] for i in range(3)}
        {
            ".npz": lambda path: np.savez(path, logits=LOGITS, y=np.array(target)),
            ".pt": lambda path: torch.save({"logits": torch.from_numpy(LOGITS), "y": target}, path),
            ".csv": lambda path: csv.write_csv(pa.table({**columns, "y": target}), path),
        }[kind](tmp_path / f"a{kind}")
        assert read_logits(tmp_path / f"a{kind}", classes=CLASSES).target.tolist() == [1, 0, 2]
        with pytest.raises(ValueError, match=r"(?s)'y', got .*'dog'.*--classes"):
            read_logits(tmp_path / f"a{kind}")

    @pytest.mark.parametrize(
        ("target", "classes", "message"),
        [
            (["cat", "cow", "dog"], CLASSES, "expected names of classes in 'label', got 'cow' in row 1"),
            ([0, 1, 2], ["cat", "dog", "bird"], r"expected a column for every class, got none for 'bird'"),
            ([0, 1, 2], ["cat", "dog", "cat"], "expected classes with different names, got 'cat' twice"),
            ([0, 1, 2], ["a", "b"], "expected columns logit_0"),
            ([0, 1, 2], [], "expected at least two names of classes"),
        ],
    )
    def test_what_does_not_fit(self, tmp_path, target, classes, message):
        self.save(tmp_path / "a.csv", target)
        with pytest.raises(ValueError, match=f"a.csv: {message}"):
            read_logits(tmp_path / "a.csv", classes=classes)

    def test_another_number_of_classes(self, tmp_path):
        np.savez(tmp_path / "a.npz", logits=LOGITS)
        with pytest.raises(ValueError, match="expected logits of 2 classes, one for each name, got 3"):
            read_logits(tmp_path / "a.npz", classes=["a", "b"])

    def test_numbers_that_could_be_names_or_places_are_refused(self, tmp_path):
        self.save(tmp_path / "a.csv", [1, 2, 3], ["1", "2", "3"])
        with pytest.raises(ValueError, match=r"'label' .*could be names or indices.*rename the classes"):
            read_logits(tmp_path / "a.csv", classes=["1", "2", "3"])
        self.save(tmp_path / "b.csv", [0, 1, 2], ["0", "1", "2"])
        assert read_logits(tmp_path / "b.csv", classes=["0", "1", "2"]).target.tolist() == [0, 1, 2]


def timed(path):
    """Seconds of the processor to read a file."""
    start = time.process_time()
    read_logits(path)
    return time.process_time() - start


class TestSheets:
    """Text files as spreadsheets write them, and many columns."""

    def test_line_breaks_inside_quotes(self, tmp_path):
        lines = [
            'logit_0,logit_1,"a\nnote",y',
            *(f'{i}.5,{-i},"first line\nsecond, ""line""\r\n{i}",1' for i in range(9)),
        ]
        (tmp_path / "a.csv").write_text("\n".join(lines), newline="")
        with pytest.warns(UserWarning, match="left out a note"):
            data = read_logits(tmp_path / "a.csv")
        assert data.logits[:, 0].tolist() == [i + 0.5 for i in range(9)]
        assert data.target.tolist() == [1] * 9

    def test_a_row_longer_than_a_block_of_arrow(self, tmp_path):
        """2.4 megabytes in one quoted cell."""
        lines = ["logit_0,logit_1,note", *(f'{i},{-i},"{"long " * 480_000}"' for i in range(3))]
        (tmp_path / "a.csv").write_text("\n".join(lines))
        with pytest.warns(UserWarning, match="left out note"):
            assert read_logits(tmp_path / "a.csv").logits[:, 0].tolist() == [0, 1, 2]

    @pytest.mark.parametrize("kind", [".csv", ".parquet"])
    def test_the_time_grows_with_the_columns_and_not_with_their_square(self, tmp_path, kind):
        """Four times the columns take about four times the processor's time, where the square would be sixteen."""
        times = []
        for classes in (4_000, 16_000):
            table = pa.table({f"logit_{i}": [float(i), 0.0] for i in range(classes)})
            path = tmp_path / f"{classes}{kind}"
            {".csv": csv.write_csv, ".parquet": parquet.write_table}[kind](table, path)
            times.append(min(timed(path) for _ in range(2)))
        assert times[1] < 9 * times[0]

    def test_class_columns_in_any_case_and_order(self, tmp_path):
        (tmp_path / "a.csv").write_text("Target,LOGIT_1, Logit_0\n1,2,3\n0,5,4\n")
        data = read_logits(tmp_path / "a.csv")
        assert data.logits.tolist() == [[3, 2], [4, 5]]
        assert data.target.tolist() == [1, 0]
