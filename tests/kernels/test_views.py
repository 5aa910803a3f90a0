"""Logits are read where they are: no launch copies a view whose rows lie in at most two regular steps."""

import sys

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.kernels.cases import INTERPRETED
from tests.kernels.recorded import record
from torch_boc.functional.tally import empty_tally
from torch_boc.kernels.cpu.interface import describe
from torch_boc.kernels.triton import launch, launch_numbers
from torch_boc.kernels.triton.geometry import geometry
from torch_boc.kernels.triton.views import layout_of, readable


def numbers(*shape):
    """All different."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


VIEWS = {
    "a language model without its last token": numbers(2, 5, 40)[:, :-1],
    "one sample of it": numbers(1, 5, 40)[:, :-1],
    "images, classes first": numbers(2, 7, 4, 6).movedim(1, -1),
    "images, classes last": numbers(2, 4, 6, 7),
    "sequences, classes first": numbers(3, 5, 20).movedim(1, -1),
    "volumes, classes first": numbers(2, 3, 4, 2, 3).movedim(1, -1),
    "a table": numbers(6, 10),
    "its transpose": numbers(10, 32).T,
    "every other row": numbers(8, 5)[::2],
    "every other class": numbers(8, 10)[:, ::2],
    "the same row": numbers(1, 5).expand(4, -1),
    "one row": numbers(5),
    "two tokens": numbers(4, 1, 3, 5)[:, :, :2],
}
COPIED = numbers(3, 4, 5, 6)[:, :3, :4]
over_views = pytest.mark.parametrize("logits", VIEWS.values(), ids=VIEWS.keys())


@over_views
def test_the_layout_says_where_every_logit_is(logits):
    found = layout_of(logits)
    row, column = torch.arange(found.rows)[:, None], torch.arange(found.classes)
    inner, jump = (found.rows, 0) if found.inner is None else (found.inner, found.jump)
    stride, step = (1 if x is None else x for x in (found.stride, found.step))
    place = row // inner * jump + row % inner * stride + column * step + logits.storage_offset()
    memory = torch.tensor([], dtype=logits.dtype).set_(logits.untyped_storage())
    assert memory[place].tolist() == logits.reshape(-1, found.classes).tolist()


@over_views
def test_vectors_begin_at_multiples(logits):
    """What the kernels may take as multiples are multiples, and one more bit would not do."""
    found = layout_of(logits)
    along = [found.rows, found.inner, found.step] if found.across else [found.classes, found.stride]
    known = [x for x in (*along, found.jump) if x is not None]
    if found.across or found.step is None:
        assert all(x % 2**found.bits == 0 for x in known)
        assert found.bits == 4 or any(x % 2 ** (found.bits + 1) for x in known)
    else:
        assert found.bits == 0


def test_neighbouring_threads_read_neighbouring_pixels():
    assert layout_of(VIEWS["images, classes first"]).across
    assert not layout_of(VIEWS["images, classes last"]).across
    assert geometry(150, torch.float32, across=True)["height"] == 32
    assert geometry(150, torch.float32)["height"] == 4


@over_views
def test_views_are_read_where_they_are(logits):
    assert readable(logits) is logits


def test_other_views_are_copied():
    assert readable(COPIED).is_contiguous()


class Copies(TorchDispatchMode):
    """The operators that make or fill a tensor of at least half the size of the logits; views are not among them."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.least, self.found = logits.numel() // 2, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        fresh = not any(x.alias_info and not x.alias_info.is_write for x in func._schema.returns)
        if fresh and any(isinstance(x, Tensor) and x.numel() >= self.least for x in tree_leaves(result)):
            self.found.append(func)
        return result


def gradient(logits):
    prediction, top, odds, squares, mass, *_ = launch.empty_sums(logits, False)
    launch.launch_gradient(logits, [prediction, top, odds, mass], [top, odds, squares, mass, mass, None, None])


def tally(logits):
    target = torch.zeros(logits.shape[:-1], dtype=torch.int64)
    launch_numbers.tally(logits, target, -100, 100, 0.05, empty_tally(1))


def gaps(logits):
    states = [torch.zeros(1, dtype=kind) for kind in (torch.float64, torch.int64, torch.int64)]
    launch_numbers.gap_tally(logits, None, None, "free", states)


def count_scores(logits):
    flags, histogram = torch.zeros(logits.shape[:-1], dtype=torch.bool), torch.zeros(2, 1, 4, dtype=torch.int64)
    launch_numbers.count_scores(logits, flags, ["odds"], [-1], 100, histogram, torch.zeros(1, dtype=torch.int64))


CALLS = {
    "sums": lambda logits: launch.launch_sums(logits, True),
    "tally": tally,
    "gaps": gaps,
    "columns": lambda logits: launch_numbers.columns(logits, ["prediction", "gap", "entropy"], 100),
    "scores": count_scores,
}
TALL = {
    "a language model without its last token": numbers(2, 5, 4000)[:, :-1],
    "images, classes first": numbers(2, 2100, 4, 6).movedim(1, -1),
    "sequences, classes first": numbers(2, 2100, 20).movedim(1, -1),
}
needs_kernels = pytest.mark.skipif(sys.platform != "linux" or INTERPRETED, reason="nothing is launched here")
over_tall = pytest.mark.parametrize("logits", TALL.values(), ids=TALL.keys())


@needs_kernels
@over_tall
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_no_launch_copies_the_logits(call, logits, monkeypatch):
    """No tensor is made that is half as large: of so many classes, results and tables are much smaller."""
    pytest.importorskip("triton")
    launches = record(monkeypatch)
    with Copies(logits) as copies:
        call(logits)
    assert copies.found == []
    assert launches[0].arguments[0].data_ptr() == logits.data_ptr()


@needs_kernels
@over_tall
def test_the_gradient_is_the_only_new_tensor(logits, monkeypatch):
    pytest.importorskip("triton")
    record(monkeypatch)
    with Copies(logits) as copies:
        gradient(logits)
    assert copies.found == [torch.ops.aten.new_empty.default]


@needs_kernels
def test_a_copy_would_be_seen(monkeypatch):
    pytest.importorskip("triton")
    record(monkeypatch)
    with Copies(COPIED) as copies:
        launch.launch_rows(COPIED, False)
    assert torch.ops.aten.clone.default in copies.found


@pytest.mark.parametrize("logits", TALL.values(), ids=TALL.keys())
def test_the_native_library_reads_them_where_they_are_too(logits):
    assert describe(logits)[0].data_ptr() == logits.data_ptr()
