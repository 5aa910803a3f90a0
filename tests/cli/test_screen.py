"""`torch-boc screen`: its rows are those of the library, and it says what the level is worth."""

import csv as csv_lines
import json

import numpy as np
import pytest
import torch
from pyarrow import csv, parquet
from scipy.special import betaincinv

from tests.arrays import read_arrays
from torch_boc.functional import sample_columns
from torch_boc.nn import Acceptance, ConformalTest

READ = {".parquet": parquet.read_table, ".csv": csv.read_csv}
VAL = ("--calibration", "val.npz")


def logits(path):
    return torch.from_numpy(read_arrays(path)["logits"])


def held_out(files, groups=None):
    arrays = read_arrays(files / "val.npz")
    return Acceptance(groups).calibrate(*(torch.from_numpy(arrays[name]) for name in ("logits", "target")))


@pytest.fixture
def bare(files):
    """The test set without targets."""
    np.save(files / "bare.npy", read_arrays(files / "test.npz")["logits"])
    return files


def result(run, *args):
    code, out, err = run("screen", *args, "--json")
    assert (code, err) == (0, "")
    return json.loads(out, parse_constant=pytest.fail)


@pytest.mark.parametrize(("kind", "groups", "error"), [(".parquet", None, "0.15"), (".csv", "prediction", "0.3")])
def test_the_rows_are_those_of_the_library(run, files, kind, groups, error):
    options = ("--groups", groups) if groups else ()
    out = f"new/out{kind}"
    levels = ("--alpha", "0.1", "--fdr", "0.2", "--error", error)
    assert run("screen", "test.npz", *VAL, *levels, *options, "-o", out).code == 0
    table, new, accept = READ[kind](files / out), logits(files / "test.npz"), held_out(files, groups)
    test = ConformalTest(groups=groups).calibrate(logits(files / "val.npz"))
    expected = {
        "index": torch.arange(200),
        "target": read_arrays(files / "test.npz")["target"],
        **sample_columns(new, columns=["prediction", "confidence"]),
        "p_in_distribution": test(new),
        "review": test.flag(new, 0.1),
        "discovery": test.discoveries(new, 0.2),
        "accepted": accept.accept(new, float(error)),
    }
    assert table.column_names == list(expected)
    assert table["p_in_distribution"].to_pylist() == sorted(test(new).tolist())  # the lowest first
    table = table.sort_by("index")
    assert all(table[name].to_pylist() == values.tolist() for name, values in expected.items())
    assert sum(table["review"].to_pylist()) > 5
    assert 0 < sum(table["accepted"].to_pylist()) < 200
    assert [path.name for path in (files / "new").iterdir()] == [f"out{kind}"]


def test_the_numbers(run, bare):
    test, new = ConformalTest().calibrate(logits(bare / "val.npz")), logits(bare / "test.npz")
    threshold = test.threshold(0.05)
    found = result(run, "bare.npy", *VAL)
    assert (found["held_out"], found["held_out_samples"], found["score"]) == ("val", 200, "gen")
    assert found["threshold"] == float(threshold.score)
    assert (found["alpha"], found["expected_rate"]) == (0.05, pytest.approx(10 / 201))
    rates = [betaincinv(10, 191, chance) for chance in (0.05, 0.95)]
    assert [found["rate_low"], found["rate_high"]] == pytest.approx(rates)
    low, high = (f"{100 * rate:.1f} %" for rate in rates)
    flagged = int(test.flag(new).sum())
    (part,) = found["sets"]
    first = part.pop("first")
    assert part == {"name": "bare", "samples": 200, "shifted": False, "review": flagged}
    assert [row["p_in_distribution"] for row in first] == test(new).sort().values[:5].tolist()
    code, out, err = run("screen", "bare.npy", *VAL, "--fdr", "0.1")
    assert (code, err) == (0, "")
    told = " ".join(out.split())
    assert f"flagged for review {flagged} ({flagged / 2:.1f} %)" in told
    assert "discoveries: on average at most 10 % are ID, if the ID ones" in told
    condition = "if samples are exchangeable with the held-out set"
    assert f"expected FPR: at most 5.0 % (with 90 % probability {low} to {high}), {condition}" in told
    sure = result(run, "bare.npy", *VAL, "--delta", "0.01")
    assert sure["threshold"] < found["threshold"]
    grouped = " ".join(run("screen", "bare.npy", *VAL, "--groups", "prediction", "--error", "0.3").out.split())
    assert " % in each group by prediction, if samples" in grouped
    assert "accepted: error ≤ 30 % in each group by prediction with 95 % " in grouped


def test_accepted_predictions_carry_their_condition(run, bare):
    """The line and the JSON say how many, at which error, also from a test that was saved."""
    accept = held_out(bare)
    score, coverage, _ = accept.threshold(0.2, delta=0.1)
    number = int(accept.accept(logits(bare / "test.npz"), 0.2, 0.1).sum())
    asked = ("--error", "0.2", "--delta", "0.1")
    found = result(run, "bare.npy", *VAL, *asked)
    assert run("screen", "bare.npy", *VAL, "--save-test", "t.pt").code == 0
    assert (found["error"], found["error_delta"], found["sets"][0]["accepted"]) == (0.2, 0.1, number)
    assert [found["accepted_from"], found["accepted_held_out"]] == [float(score), float(coverage)]
    told = " ".join(run("screen", "bare.npy", "--test", "t.pt", *asked).out.split())
    assert f"accepted: error ≤ 20 % with 90 % probability, if samples are {number} ({number / 2:.1f} %)" in told
    _, out, err = run("screen", "bare.npy", *VAL, "--error", "0.001")
    assert "accepted at 0.1 % error: 2,995 held-out samples needed, got 200 0 (0.0 %)" in " ".join(out.split())
    assert "error ≤" not in out
    assert err.count("warning") == 1
    assert "nothing can be accepted at max_error=0.001 and delta=0.05: 200 held-out samples" in err


@pytest.mark.parametrize("change", [lambda x, noise: noise, lambda x, noise: 3 * x], ids=["noise", "more confident"])
def test_nothing_is_accepted_where_the_guarantee_is_void(run, bare, change):
    """Far more than alpha is flagged, or nothing is, so that only the drift test rejects."""
    np.save(bare / "new.npy", change(read_arrays(bare / "test.npz")["logits"], logits(bare / "noise.npz").numpy()))
    found = result(run, "new.npy", "bare.npy", *VAL, "--error", "0.2")
    assert [(part["shifted"], part["accepted"] > 0) for part in found["sets"]] == [(True, False), (False, True)]
    both = " ".join(run("screen", "new.npy", "bare.npy", *VAL).out.split())
    assert "if samples are exchangeable with the held-out set; not valid for new; held-out set: 200 samples" in both
    told = " ".join(run("screen", "new.npy", *VAL, "--error", "0.2", "-o", "new.csv").out.split())
    assert "accepted at 20 % error: not valid here: these inputs do not look" in told
    assert "expected FPR: not valid here: these inputs do not look like the held-out set" in told
    assert not any(csv.read_csv(bare / "new.csv")["accepted"].to_pylist())


def test_one_sample_and_repeated_held_out_samples(run, files):
    """One is no plural; a held-out set of copies is named, because each copy counts."""
    arrays = {name: x[:50].repeat(4, 0) for name, x in read_arrays(files / "val.npz").items()}
    np.savez(files / "copies.npz", **arrays)
    np.savez(files / "one.npz", logits=read_arrays(files / "noise.npz")["logits"][:1])
    code, out, err = run("screen", "one.npz", "--calibration", "copies.npz", "--alpha", "0.9")
    assert code == 0
    assert "one: 1 sample\n" in out
    assert "the lowest p-values (1 of 1 flagged):" in out
    repeated, condition = (
        "150 of the 200 rows of 'copies' repeat an earlier row",
        "its repeated rows are different samples",
    )
    assert repeated in err
    assert repeated in run("monitor", "one.npz", "--calibration", "copies.npz").err
    assert condition in " ".join(out.split())
    assert run("screen", "one.npz", "--calibration", "copies.npz", "--save-test", "t.pt").code == 0
    assert condition in " ".join(run("screen", "one.npz", "--test", "t.pt").out.split())
    plain = run("screen", "one.npz", *VAL)
    assert "repeat" not in plain.err + plain.out
    for command in (("monitor", *VAL), ("probe",)):
        assert "one: 1 sample," in run(command[0], "one.npz", *command[1:]).out


def test_several_files_are_one_table(run, bare):
    found = result(run, "test.npz", "bare.npy", *VAL, "-o", "out.parquet")
    assert [part["name"] for part in found["sets"]] == ["test", "bare"]
    table = parquet.read_table(bare / "out.parquet")
    assert table.column_names[:3] == ["file", "index", "prediction"]  # one of the two has no targets
    assert table["file"].to_pylist() == ["test"] * 200 + ["bare"] * 200
    assert sorted(table["index"].to_pylist()[200:]) == [*range(200)]
    counts = [sum(table["review"].to_pylist()[start : start + 200]) for start in (0, 200)]
    assert counts == [part["review"] for part in found["sets"]]


def test_names_labels_of_other_classes_and_nan(run, files):
    """File names and names of classes come back; NaN is flagged and comes first; `-o -` prints rows alone."""
    arrays = {**read_arrays(files / "noise.npz"), "target": np.arange(200) % 14}
    arrays["logits"][[7, 9]] = np.nan
    np.savez(files / "odd.npz", **arrays, filename=np.array([f"{i}.png" for i in range(200)]))
    code, out, err = run("screen", "odd.npz", *VAL, "--classes", "c0,c1,c2,c3", "-o", "-")
    assert code == 0
    header, *rows = csv_lines.reader(out.splitlines())
    first = [dict(zip(header, row, strict=True)) for row in rows][:3]
    assert (len(rows), [row["filename"] for row in first[:2]]) == (200, ["7.png", "9.png"])
    assert [row["review"] for row in first] == ["true"] * 3
    assert first[2]["class"] == f"c{first[2]['prediction']}"
    assert first[2]["target"] == str(int(first[2]["index"]) % 14)
    assert "the lowest p-values (5 of " in err
    assert "7.png" in err


def test_a_column_whose_name_has_a_line_break(run, files):
    for name in ("noise", "test"):
        arrays = {**read_arrays(files / f"{name}.npz"), "file\nname": np.array([f"{i}.png" for i in range(200)])}
        np.savez(files / f"odd-{name}.npz", **arrays)
    assert run("screen", "odd-noise.npz", "odd-test.npz", *VAL, "-o", "out.parquet").code == 0
    assert parquet.read_table(files / "out.parquet").column_names[2] == "file\\nname"


def test_a_kept_test_needs_no_held_out_logits(run, files):
    options = ("--score", "dominance", "--groups", "confidence")
    with_data = run("screen", "noise.npz", *VAL, *options, "--save-test", "kept/test.pt", "--json")
    (files / "val.npz").unlink()
    kept = run("screen", "noise.npz", "--test", "kept/test.pt", "--json")
    assert (with_data.code, kept.code) == (0, 0)
    assert json.loads(kept.out) == json.loads(with_data.out)
    assert json.loads(kept.out)["groups"] == "confidence"


def test_warnings(run, files):
    assert (
        "200 of the 200 rows of 'val' are also in the held-out samples of 'val'" in run("screen", "val.npz", *VAL).err
    )
    code, _, err = run("screen", "test.npz", *VAL, "--alpha", "0.001", "--fdr", "0.001")
    assert (code, err.count("warning")) == (0, 2)
    assert "nothing can be flagged at alpha=0.001" in err
    assert "at fdr=0.001 nothing is discovered unless" in err


def test_probabilities(run, bare):
    for name in ("val", "test"):
        np.savez(bare / f"{name}_p.npz", logits=logits(bare / f"{name}.npz").double().softmax(1).numpy())
    shares = ("test_p.npz", "--calibration", "val_p.npz", "--probabilities")
    expected, found = result(run, "bare.npy", *VAL), result(run, *shares, "--save-test", "p.pt")
    assert found["sets"][0]["review"] == expected["sets"][0]["review"]
    assert "always 0 after a softmax" in run("screen", *shares, "--score", "energy").err
    mixed = run("screen", "noise.npz", "--test", "p.pt")
    assert mixed.code == 2
    assert "p.pt: expected probabilities, as at its calibration, got logits; add --probabilities" in mixed.err
