"""The exact summary of a folder of rows is that of their logits, and reports on rows have the NLL."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import Dataset

from torch_boc import BoCPredictor
from torch_boc.evaluation import evaluate, summarize_rows
from torch_boc.functional import boc_summary

RANDOM = torch.Generator().manual_seed(0)
LOGITS, TARGET = torch.randn(300, 4, generator=RANDOM) * 3, torch.randint(4, (300,), generator=RANDOM)
SITES = ["east" if i % 3 else "west" for i in range(300)]


class Samples(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, i):
        return {"input": LOGITS[i], "label": TARGET[i], "site": SITES[i]}


@pytest.fixture
def folder(tmp_path):
    """What two processes have written."""
    for rank in range(2):
        options = {"id": "site", "shard": (rank, 2), "progress": False, "batch_size": 50}
        BoCPredictor(torch.nn.Identity(), **options).to_parquet(Samples(), tmp_path / "rows")
    return tmp_path / "rows"


def test_sums_are_those_of_all_logits(folder):
    assert_close(summarize_rows(folder), boc_summary(LOGITS, TARGET), rtol=1e-6, atol=1e-7)
    options = {"alpha": 0.2, "ignore_index": 3, "trials": 30, "bins": 7}
    assert_close(summarize_rows(folder, **options), boc_summary(LOGITS, TARGET, **options), rtol=1e-6, atol=1e-7)
    classes = summarize_rows(folder, by="target")
    assert classes[2]["accuracy"] == boc_summary(LOGITS[TARGET == 2], TARGET[TARGET == 2])["accuracy"]
    groups = summarize_rows(folder, by="site")
    assert set(groups) == {"east", "west"}
    west = slice(None, None, 3)
    assert_close(groups["west"], boc_summary(LOGITS[west], TARGET[west]), rtol=1e-6, atol=1e-7)


def test_a_run_that_has_not_finished_warns(folder):
    next(iter(folder.glob("part-*"))).unlink()
    with pytest.warns(UserWarning, match="on a part of the samples: expected all 300 samples"):
        assert int(summarize_rows(folder)["samples"]) < 300


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"a\.csv: expected a column 'logits', or those of a predictor, got a, b"):
        summarize_rows(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("odds,target\n1,0\n")
    with pytest.raises(ValueError, match=r"a\.csv: expected a column 'logits', or those of a predictor, got "):
        summarize_rows(tmp_path / "a.csv")


def test_a_report_on_rows_has_the_nll(folder):
    report = evaluate(folder, replicates=20)
    rows = report.results.calibration
    nll = torch.nn.functional.cross_entropy(LOGITS.double(), TARGET)
    assert rows["nll"].iloc[0] == pytest.approx(float(nll), rel=1e-6)
    assert "the NLL" not in report.results.settings["left_out"]
