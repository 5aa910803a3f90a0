"""A table of all samples, as one process writes it."""

import pyarrow.parquet as parquet
import pytest

from tests.inference import sharded


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """What a single process writes."""
    path = tmp_path_factory.mktemp("whole") / "samples.parquet"
    return parquet.read_table(sharded.predictor(None).to_parquet(sharded.Images(), path))
