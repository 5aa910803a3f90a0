"""What is wrong with a folder is named, and what is right is read by all."""

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from tests.inference import sharded
from tests.inference.folders import run
from tests.inference.sharded import SAMPLES, Images
from torch_boc.inference import check_complete
from torch_boc.inference.manifest import part_name


def read_with_metadata(path):
    """A table whose schema carries the record of the run, which the writer keeps."""
    return parquet.read_table(path).replace_schema_metadata(parquet.read_metadata(path).metadata)


def damage(path):
    path.write_bytes(path.read_bytes()[:100])


def shorten(path):
    parquet.write_table(read_with_metadata(path).slice(1), path)


def rename(path):
    path.rename(path.with_name(part_name(range(0, 10))))


def foreign(path):
    parquet.write_table(arrow.table({"a": [1]}), path.with_name("other.parquet"))


def nested(path):
    (path.parent / "copy").mkdir()
    (path.parent / "copy" / path.name).write_bytes(path.read_bytes())


def without_manifest(path):
    (path.parent.with_name("out.run") / "manifest.json").unlink()


def damaged_manifest(path):
    (path.parent.with_name("out.run") / "manifest.json").write_text("{")


DAMAGE = {
    "damaged part": (damage, "expected a whole Parquet file, got .*part-000000000000"),
    "part without some rows": (shorten, "expected 20 rows in .*part-.*, got 19; delete it"),
    "part of another size": (rename, "expected blocks of 20 samples in .*, got part-000000000000-000000000010"),
    "another table": (foreign, "expected parts of a run only in .*, got other.parquet; choose another folder"),
    "a folder of parts": (
        nested,
        "expected parts of a run only in .*, got copy.part-0.*parquet; choose another folder",
    ),
    "no manifest": (without_manifest, "expected .*manifest.json beside the parts in .*, got none"),
    "damaged manifest": (damaged_manifest, "expected the manifest of a run, got .*manifest.json, which is damaged"),
}


@pytest.mark.parametrize(("change", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_named(change, message, complete):
    change(complete / part_name(range(20)))
    with pytest.raises(ValueError, match=message):
        run(complete, [0], 2)


def test_check_complete_names_what_is_wrong(complete, tmp_path):
    first = complete / part_name(range(20))
    with pytest.raises(ValueError, match=r"expected parts of a run in .*nothing, got none"):
        check_complete(tmp_path / "nothing")
    table = first.read_bytes()
    shorten(first)
    with pytest.raises(ValueError, match=r"expected 20 rows in .*, got 19"):
        check_complete(complete)
    first.unlink()
    with pytest.raises(ValueError, match=r"expected all 1001 samples in .*, got none of 0 to 19; .*any number of proc"):
        check_complete(complete)
    (complete / part_name(range(20, 40))).unlink()
    (complete / part_name(range(1000, 1001))).unlink()
    with pytest.raises(ValueError, match="got none of 0 to 39, 1000 to 1000;"):
        check_complete(complete)
    first.write_bytes(table)
    sharded.predictor((0, 1), trials=7).to_parquet(Images(), tmp_path / "others")
    other = next((tmp_path / "others").iterdir())
    other.rename(complete / part_name(range(20, 40)))
    with pytest.raises(ValueError, match="expected parts of one run"):
        check_complete(complete)


def test_a_folder_inside_of_the_folder(complete):
    """Readers take its rows too, so that its samples would come twice."""
    nested(complete / part_name(range(20)))
    with pytest.raises(ValueError, match=r"got copy.part-0"):
        check_complete(complete)
    (complete / "copy").rename(complete / "_copy")
    assert check_complete(complete) == SAMPLES == len(parquet.read_table(complete))


def test_a_sample_that_is_there_twice(complete):
    part = complete / part_name(range(20))
    parquet.write_table(read_with_metadata(part).slice(0, 10), complete / part_name(range(10)))
    with pytest.raises(ValueError, match=r"expected each sample once in .*, got 0 to 9 twice"):
        check_complete(complete)


def test_pandas_reads_the_folder_while_it_is_written(complete, whole):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(complete)
    assert frame["path"].tolist() == whole["path"].to_pylist()
    assert {path.suffix for path in complete.iterdir()} == {".parquet"}, "polars refuses a folder with other files"


def test_polars_and_duckdb_read_the_folder(complete):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    assert polars.read_parquet(complete)["index"].sort().to_list() == list(range(SAMPLES))
    (rows,) = duckdb.sql(f"select count(distinct path) from '{complete}/*.parquet'").fetchall()
    assert rows == (SAMPLES,)
