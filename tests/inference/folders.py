"""Folders that several processes wrote, and what they must hold."""

from pathlib import Path

import pyarrow.parquet as parquet

from tests.inference import sharded
from tests.inference.sharded import SAMPLES, Images
from torch_boc.inference import check_complete


def read(folder):
    """The whole folder as one table, as pandas and others read it."""
    return parquet.read_table(folder)


def assert_whole(folder, whole):
    assert check_complete(folder) == SAMPLES
    table = read(folder)
    assert table.column_names == whole.column_names
    assert table["index"].to_pylist() == list(range(SAMPLES))
    assert table.equals(whole), "bit by bit"


def run(folder, ranks, world, data=None, **options):
    """Some ranks, one after the other, in this process."""
    for rank in ranks:
        given = Images() if data is None else data
        assert sharded.predictor((rank, world), **options).to_parquet(given, folder) == Path(folder)
