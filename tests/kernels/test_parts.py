"""When a row is split over several programs, and that no batch needs another code for it."""

import pytest
import torch

from tests.kernels.offline import OFFLINE
from tests.kernels.recorded import bind, record
from tests.kernels.test_offline import A100
from torch_boc.kernels.triton import launch, launch_sums
from torch_boc.kernels.triton.geometry import LEAST_PARTS, MOST_PARTS, PART_CLASSES, Stage, parts_of


@pytest.mark.parametrize("processors", [1, 20, 40, 108, 132])
def test_few_long_rows_fill_the_device(processors):
    blocks = -(-128_256 // PART_CLASSES)
    for rows in range(1, 300):
        parts = parts_of(rows, 128_256, processors)
        assert (parts > 1) == (LEAST_PARTS * rows <= processors)
        if 1 < parts < blocks:
            assert rows * parts <= processors < rows * (parts + 1)


def test_eight_rows_of_a_large_vocabulary_use_the_processors_of_an_a100():
    assert 8 * parts_of(8, 128_256, 108) == 104


def test_short_rows_are_not_split_and_a_part_is_not_small():
    assert {parts_of(1, classes, 108) for classes in (2, 1000, 16384)} == {1}
    assert parts_of(1, 16385, 108) == 5
    assert parts_of(1, 10**7, 10_000) == MOST_PARTS


def started(monkeypatch, rows, processors):
    """The stages of the launches, their grids and the keys of their code."""
    with monkeypatch.context() as patch:
        patch.setattr(launch, "processors", lambda device: processors)
        launches = record(patch)
        logits = torch.zeros(rows, 50272)
        launch.launch_sums(logits, True)
        prediction, top, odds, squares, mass, *_ = launch.empty_sums(logits, True)
        launch.launch_gradient(logits, [prediction, top, odds, mass], [top, odds, squares, *[None] * 4])
    stages = [(x.kernel.__name__, x.arguments[-1], x.grid) for x in launches]
    return stages, {bind(x, A100)[2] for x in launches}


pytestmark = OFFLINE


def test_the_stages(monkeypatch):
    whole, keys = started(monkeypatch, 256, 108)
    assert whole == [(name, Stage.WHOLE, (256,)) for name in ("long_rows", "spread", "long_gradients")]
    split, same = started(monkeypatch, 20, 108)
    stages = [("long_rows", Stage.TOPS), ("long_rows", Stage.SUMS), ("long_rows", Stage.JOIN)]
    stages += [(name, stage) for name in ("spread", "long_gradients") for stage in (Stage.SUMS, Stage.JOIN)]
    assert split == [(*x, (20 if x[1] == Stage.JOIN else 20 * 5,)) for x in stages]
    assert same == keys
    assert started(monkeypatch, 1, 108)[1] == keys


def test_the_log_odds_of_split_rows_have_the_code_of_whole_rows(monkeypatch):
    launches = record(monkeypatch)
    for processors in (1, 108):
        monkeypatch.setattr(launch, "processors", lambda device, number=processors: number)
        launch_sums.row_sums(torch.zeros(20, 50272), spread=False, log_rest=True)
    spread = [x for x in launches if x.kernel.__name__ == "spread"]
    assert [x.arguments[-1] for x in spread] == [Stage.WHOLE, Stage.SUMS, Stage.JOIN]
    assert len({bind(x, A100)[2] for x in spread}) == 1
