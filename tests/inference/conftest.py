"""A table of all samples, and a folder of it, for the tests of folders."""

import pyarrow.parquet as parquet
import pytest

from tests.inference import sharded
from tests.inference.folders import run
from tests.inference.sharded import Images


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """What a single process writes."""
    path = tmp_path_factory.mktemp("whole") / "samples.parquet"
    return parquet.read_table(sharded.predictor(None).to_parquet(Images(), path))


@pytest.fixture
def complete(tmp_path):
    run(tmp_path / "out", range(2), 2)
    return tmp_path / "out"
