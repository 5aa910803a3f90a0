"""Files that appear whole or not at all."""

import pytest

from torch_boc.writing import replacing


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert not list(tmp_path.iterdir())
    with replacing(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
    assert [x.read_text() for x in tmp_path.iterdir()] == ["whole"]
