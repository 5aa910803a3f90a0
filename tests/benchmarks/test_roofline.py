"""The committed page of the roofline, and the bytes on it against counts by hand."""

import pytest
import torch

from benchmarks import roofline, traffic
from torch_boc.core.tails import continued_steps


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def test_committed_page_is_that_of_the_code():
    """If this fails, the page is out of date: run `python -m benchmarks.roofline`."""
    assert roofline.PAGE.read_text(encoding="utf-8") == roofline.page()


def test_the_command_writes_the_page(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(roofline, "PAGE", tmp_path / "page.md")
    roofline.main()
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == roofline.page()
    assert capsys.readouterr().out == "wrote page.md\n"


@pytest.mark.parametrize(
    ("dtype", "size", "wide"), [(torch.float32, 4, 4), (torch.bfloat16, 2, 4), (torch.float64, 8, 8)]
)
def test_bytes_by_hand(dtype, size, wide):
    logits = meta(3, 1000, dtype=dtype)
    results = 8 + wide + wide + 8  # prediction, top, odds, squares
    assert traffic.rows_traffic(logits) == (3000 * size, 0, 3 * results)
    assert traffic.gradients_traffic(logits) == (3000 * size + 3 * (8 + wide + wide + wide + 8), 0, 3000 * size)
    assert traffic.tails_traffic(logits) == (3 * 2 * wide, 0, 3 * 16)


def test_a_long_row_is_read_twice():
    logits = meta(2, 50_257)
    moved = traffic.rows_traffic(logits)
    assert moved.again == moved.read == logits.nbytes
    assert moved.most - moved.least == logits.nbytes
    assert traffic.bytes_in_flight(logits, traffic.GPUS["A100"]) == logits.nbytes
    assert traffic.bytes_in_flight(meta(10**6, 50_257), traffic.GPUS["A100"]) == 108 * 4 * logits[0].nbytes


def test_instructions_by_hand():
    """64 rows of 10 classes are a program of two warps; a row of 50,257 has 13 blocks for each of 16 warps."""
    program, _ = traffic.ROW_INSTRUCTIONS[10, torch.float32]
    assert traffic.row_instructions(meta(65, 10)) == 2 * 2 * program
    program, block = traffic.ROW_INSTRUCTIONS[50_257, torch.float32]
    assert traffic.row_instructions(meta(3, 50_257)) == 3 * 16 * (program + 13 * block)
    gpu, small = traffic.GPUS["A100"]._replace(issue=1e11), meta(100_000, 10)
    assert traffic.row_seconds(small, gpu) == traffic.row_instructions(small) / gpu.issue
    assert traffic.row_seconds(small, gpu._replace(issue=1e30)) == traffic.rows_traffic(small).least / gpu.bandwidth


def test_the_instructions_of_split_rows_by_hand():
    """A row of 50,257 classes has 13 blocks; of 5 parts the largest has 3, and 8 rows of them are on 40 processors."""
    gpu = traffic.GPUS["A100"]._replace(processors=40, issue=160.0)  # four in a second for each processor
    program, block = traffic.ROW_INSTRUCTIONS[50_257, torch.float32]
    assert traffic.split_seconds(meta(8, 50_257), gpu, 1) == 16 * (program + 13 * block) / 4
    assert traffic.split_seconds(meta(8, 50_257), gpu, 5) == 16 * (3 * program + 3 * block) / 4
    assert traffic.split_seconds(meta(9, 50_257), gpu, 5) == 2 * 16 * (3 * program + 3 * block) / 4


def test_the_work_of_a_tail_grows_as_its_steps():
    assert continued_steps(100) == 18
    more = traffic.tail_instructions(1000) - traffic.tail_instructions(100)
    assert more == traffic.STEP_INSTRUCTIONS * (continued_steps(1000) - 18)


def test_slow_float64_has_the_steps_in_pairs():
    slow, fast = traffic.SLOW_FLOAT64["RTX 4090"], traffic.GPUS["A100"]
    for trials in (100, 1000):
        assert traffic.tail_seconds(10, trials, slow) == 2 * 10 * traffic.OTHER_INSTRUCTIONS / slow.float64
    for gpu, trials in ((slow, 1001), (fast, 100)):
        assert traffic.tail_seconds(10, trials, gpu) == 2 * 10 * traffic.tail_instructions(trials) / gpu.float64


def test_operators_are_counted_without_views_and_constants():
    x = meta(3, 3)
    with traffic._Operators() as seen:
        x.T[0] + torch.where(x[0] > 0, 1.0, x[0])
    assert seen.moved == [12 + 3, 3 + 12 + 12, 3 * 12]  # of >, where, +
