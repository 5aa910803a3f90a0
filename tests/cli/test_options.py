"""`--probabilities`, `--classes`, too little memory, and outputs that are known to be impossible before the work."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.arrays import read_arrays
from tests.systems import unix_only
from torch_boc.report.report import Report

REPORT = ("report", "--id", "test.npz", "--ood", "noise.npz", "--calibration", "val.npz", "--replicates", "5")


@pytest.fixture
def shares(files):
    """The same files with probabilities in the place of logits, as netcal writes them."""
    for name in ("test", "noise", "val"):
        data = read_arrays(files / f"{name}.npz")
        probabilities = torch.from_numpy(data["logits"]).softmax(1).numpy()
        np.savez(files / f"{name}.npz", predictions=probabilities, ground_truth=data["target"])
    return files


class TestProbabilities:
    def test_they_are_refused_and_the_file_is_named(self, run, shares):
        for args in (REPORT, ("probe", "test.npz")):
            code, out, err = run(*args)
            assert (code, out) == (2, "")
            assert err.startswith("torch-boc: error: test.npz: expected logits or log-probabilities, got probabilities")
            assert "--probabilities" in err

    @pytest.mark.parametrize("option", ["--ood", "--calibration", "--train"])
    def test_in_every_option(self, run, files, option):
        np.savez(files / "bad.npz", logits=np.full((20, 4), 0.25), target=np.zeros(20, int))
        code, out, err = run("report", "--id", "test.npz", option, "bad.npz")
        assert (code, out) == (2, "")
        assert err.startswith("torch-boc: error: bad.npz: expected logits")

    def test_a_report_of_them(self, run, shares):
        code, out, err = run(*REPORT, "--probabilities", "--json")
        assert (code, err) == (0, "")
        content = json.loads(out)
        assert content["settings"]["from_probabilities"] is True
        assert "energy" not in content["tables"]["ood"]["score"]
        assert content["settings"]["accuracy"] > 0.5

    def test_a_table_of_them(self, run, files):
        expected = json.loads(run("probe", "test.npz", "--json").out)
        data = read_arrays(files / "test.npz")
        shares = torch.from_numpy(data["logits"]).double().softmax(1).numpy()
        np.savez(files / "test.npz", probs=shares, y=data["target"])
        code, out, err = run("probe", "test.npz", "--probabilities", "-o", "out.csv", "--json")
        assert (code, err) == (0, "")
        found = json.loads(out)
        for key in ("accuracy", "confidence", "gap", "free_gap"):
            assert found[key] == pytest.approx(expected[key], abs=1e-6)
        assert "energy" not in (files / "out.csv").read_text().splitlines()[0]

    def test_logits_are_refused_then(self, run, files):
        code, _, err = run("probe", "test.npz", "--probabilities")
        assert code == 2
        assert err.startswith("torch-boc: error: test.npz: expected probabilities, not negative and of sum 1 within")


class TestClasses:
    CSV = "file,ship,cat,label\na,1.5,0,ship\nb,0,2.5,cat\nc,3,1,cat\n"

    @pytest.mark.parametrize("listed", ["cat,ship", "cat, ship", "names.txt"])
    def test_columns_and_targets_by_name(self, run, files, listed):
        (files / "names.txt").write_text("cat\nship\n\n")
        (files / "a.csv").write_text(self.CSV)
        code, out, err = run("probe", "a.csv", "--classes", listed, "--json")
        assert code == 0
        assert err == "torch-boc: warning: a.csv: took 'logits' as logits, 'label' as targets; left out file (text)\n"
        found = json.loads(out)
        assert (found["classes"], found["accuracy"]) == (2, pytest.approx(2 / 3))

    def test_in_a_report(self, run, files):
        (files / "a.csv").write_text(self.CSV.replace("file,", "index,"))
        out = run("report", "--id", "a.csv", "--classes", "cat,ship", "--replicates", "3", "--json").out
        assert json.loads(out)["settings"]["accuracy"] == pytest.approx(2 / 3)

    def test_without_the_option_it_is_named(self, run, files):
        (files / "a.csv").write_text(self.CSV)
        assert "--classes on the command line" in run("probe", "a.csv").err


class TestMemory:
    """Its own exit code, and no word of a damaged file."""

    ERRORS = (
        MemoryError("Unable to allocate 7 GiB"),
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("unable to mmap 99 bytes from file <a.pt>: Cannot allocate memory (12)"),
    )

    @pytest.mark.parametrize("error", ERRORS)
    @pytest.mark.parametrize("where", ["torch_boc.data.row_arrays.RowArray.read", "torch_boc.cli.probe._columns"])
    def test_too_little_memory(self, run, files, monkeypatch, error, where):
        def fail(*args, **kwargs):
            raise error

        monkeypatch.setattr(where, fail)
        code, out, err = run("probe", "test.npz", "-o", "out.csv")
        assert (code, out) == (3, "")
        assert err.startswith("torch-boc: error: ")
        assert "too little memory" in err
        assert "damaged" not in err
        assert err.count("\n") == 1
        assert ("test.npz" in err) == (where != "torch_boc.cli.probe._columns")
        assert not [path for path in files.iterdir() if "out.csv" in path.name]

    def test_a_file_of_that_name_is_no_lack_of_memory(self, run, files):
        assert run("probe", "out of memory.npz").code == 2
        (files / "out of memory.npz").write_bytes(b"noise")
        code, _, err = run("probe", "out of memory.npz")
        assert code == 2
        assert "damaged" in err

    def test_the_exit_codes_are_in_the_help(self, run):
        assert "3 too little memory" in " ".join(run("--help").out.split())

    @pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as on Linux")
    def test_under_a_real_limit(self, tmp_path):
        """A report needs all logits at once, and `probe` does not."""
        # Half a gigabyte, which takes no room on a disk that keeps no zeros.
        path = tmp_path / "big.npy"
        np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(2**19, 256)).flush()
        code = (
            "import resource, sys, numpy, torch_boc.metrics, torch_boc.cli.app as app\n"
            "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
            "resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))\n"
            "sys.exit(app.run_command(sys.argv[1:]))\n"
        )
        run = [sys.executable, "-c", code]
        done = subprocess.run([*run, "probe", path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("big: 524,288 samples, 256 classes")
        done = subprocess.run([*run, "report", "--json", "--id", path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith(f"torch-boc: error: {path}: too little memory to read it (536.9 MB on disk)")

    def test_a_header_that_promises_too_much_is_damage(self, run, files):
        np.save(files / "a.npy", np.ones((4, 3)))
        content = (files / "a.npy").read_bytes().replace(b"(4, 3), }          ", b"(4000000000000, 3)}")
        (files / "a.npy").write_bytes(content)
        code, _, err = run("probe", "a.npy")
        assert code == 2
        assert "damaged or cut off" in err


class TestOutputs:
    """What cannot be written is said before anything is read."""

    @pytest.fixture(autouse=True)
    def no_work(self, monkeypatch):
        def fail(*args, **kwargs):
            raise AssertionError("the work has begun")

        monkeypatch.setattr("torch_boc.cli.inputs.read_logits", fail)
        monkeypatch.setattr("torch_boc.cli.inputs.stream_logits", fail)
        monkeypatch.setattr("torch_boc.zoo.load", fail)
        monkeypatch.setattr(Report, "figures", fail)

    @pytest.mark.parametrize("blocked", ["report.html", "report.md", "report.json", "roc.png", "trials.png"])
    @pytest.mark.parametrize("command", [("report", "--id", "test.npz"), ("demo", "vit")])
    def test_a_folder_in_the_place_of_a_file(self, run, files, blocked, command):
        (files / "out" / blocked).mkdir(parents=True)
        code, out, err = run(*command, "--out", "out")
        assert (code, out) == (2, "")
        assert f"got the folder out/{blocked}" in err

    @pytest.mark.parametrize("blocked", ["index.html", "resnet20-cifar10/report.html"])
    def test_of_all_models(self, run, files, blocked):
        (files / "out" / blocked).mkdir(parents=True)
        code, _, err = run("demo", "--out", "out")
        assert code == 2
        assert f"got the folder out/{blocked}" in err

    def test_a_file_in_the_place_of_a_folder(self, run, files):
        (files / "out").mkdir()
        (files / "out" / "resnet20-cifar10").touch()
        code, _, err = run("demo", "--out", "out")
        assert code == 2
        assert "out/resnet20-cifar10" in err

    @unix_only
    @pytest.mark.parametrize("out", ["folder.csv", "test.npz/a.csv", "null.csv"])
    def test_a_table(self, run, files, out):
        (files / "folder.csv").mkdir()
        (files / "null.csv").symlink_to("/dev/null")
        code, _, err = run("probe", "test.npz", "-o", out)
        assert code == 2
        assert err.startswith("torch-boc: error: ")
