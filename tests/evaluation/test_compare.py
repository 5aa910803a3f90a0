"""Several reports side by side."""

import pytest

from tests.evaluation.report_cases import LEAK, Outline, make_results
from torch_boc.evaluation.compare import Comparison
from torch_boc.evaluation.report import Report


@pytest.fixture(scope="module")
def comparison():
    full, bare = make_results((LEAK, "held out")), make_results((), (), targets=False)
    return Comparison({"ResNet <20>": Report(full), "no/targets": Report(bare)})


def test_a_column_for_each_model_and_no_empty_rows(comparison):
    table = comparison.table()
    assert table.columns == ["", "ResNet <20>", "no/targets"]
    rows = {name.text: [cell.text for cell in cells] for name, *cells in table.rows}
    results = comparison.reports["ResNet <20>"].results
    msp = results.calibration.set_index("method").loc["MSP", "ece"]
    assert rows["ECE, MSP"] == [f"{msp:.4f}", "–"]
    auroc = results.ood.set_index("score").loc["structural_score", "auroc"]
    assert rows["AUROC, s_BoC"][0] == f"{auroc:.4f}"
    assert all(any(value != "–" for value in values) for values in rows.values())


def test_calibrators_of_an_honest_split_come_first(comparison):
    cells = {name.text: first for name, first, _ in comparison.table().rows}
    assert cells["ECE, temperature"].small == "fitted on held out"


def test_page_links_to_each_report(comparison, tmp_path):
    paths = comparison.save(tmp_path)
    assert paths[0] == tmp_path / "index.html"
    assert all(path.exists() for path in paths)
    source = paths[0].read_text(encoding="utf-8")
    assert len(Outline(source).all("h2")) == 2
    assert "<20>" not in source
    for folder in ("ResNet--20-", "no-targets"):
        assert (tmp_path / folder / "report.html") in paths
        assert f"href='{folder}/report.html'" in source
    for sentence in comparison.reports["no/targets"].verdict:
        assert sentence[:30] in source


def test_nothing_to_compare():
    with pytest.raises(ValueError, match="expected at least one report to compare, got none"):
        Comparison({})
