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


def test_the_work_of_a_tail_grows_as_its_steps():
    assert continued_steps(100) == 18
    more = traffic.tail_instructions(1000) - traffic.tail_instructions(100)
    assert more == traffic.STEP_INSTRUCTIONS * (continued_steps(1000) - 18)


def test_operators_are_counted_without_views_and_constants():
    x = meta(3, 3)
    with traffic._Operators() as seen:
        x.T[0] + torch.where(x[0] > 0, 1.0, x[0])
    assert seen.moved == [12 + 3, 3 + 12 + 12, 3 * 12]  # of >, where, +
