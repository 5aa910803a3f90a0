"""The fields of a row type are the columns of its table."""

from tests.data.cases import labelled, unfamiliar
from tests.report.cases import make_results
from torch_boc.evaluation import evaluate
from torch_boc.report.report import TABLES
from torch_boc.report.tables import EXPLORED, ROW_TYPES, RocRow, frame


def test_every_table_has_the_columns_of_its_rows():
    made, report = make_results(), evaluate(labelled(60), unfamiliar(60), replicates=5, trial_counts=(20,))
    assert [*TABLES, *EXPLORED] == [name for name in vars(made) if name != "settings"]
    for name, row in ROW_TYPES.items():
        assert list(getattr(report.results, name)) == list(row._fields)
        assert set(getattr(made, name)) == set(row._fields)


def test_a_table_without_rows_has_its_columns():
    assert list(frame(RocRow, [])) == ["ood", "score", "fpr", "tpr"]
    assert frame(RocRow, [RocRow("a", "b", 0.5, 1.0)]).to_dict("list")["tpr"] == [1.0]
