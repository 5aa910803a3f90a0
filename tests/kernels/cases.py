"""One list of cases and one function that compares the kernels of a path with the formulas of `core`."""

import math
import os
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from torch_boc.core.coins import Coins
from torch_boc.core.martingale import StreamState, count_valid, empty_stream, place_bets
from torch_boc.core.row_numbers import columns as columns_by_torch
from torch_boc.core.row_sums import row_sums as sums_by_torch
from torch_boc.core.schema import COINS, NOT_BY_TRITON, QUANTITIES, SUMS, Tally
from torch_boc.core.tails import expected_wins
from torch_boc.core.tails import log_tails as tails_by_torch
from torch_boc.core.tally import add_samples, empty_tally
from torch_boc.kernels import operators
from torch_boc.kernels.cpu import loader

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_native = pytest.mark.skipif(not loader.variant() or INTERPRETED, reason=loader.why_not() or "interpreted")
# Of sums that are taken in another order, and of what follows from them, relative to the number.
RTOL = {torch.float32: 4e-6, torch.float64: 1e-12}


class Case(NamedTuple):
    """Logits of this many rows, classes and dtype. `kind` says what their values are, `view` how they lie in memory."""

    rows: int
    classes: int
    dtype: torch.dtype = torch.float32
    kind: str = "usual"
    view: str = "contiguous"

    def logits(self, device: str = "cpu") -> Tensor:
        """The logits, always the same."""
        z = torch.randn(self.rows, self.classes, generator=torch.Generator().manual_seed(self.classes)).double()
        z = z * {"flat": 1e-3, "sharp": 3.0, "wide": 30.0}.get(self.kind, 3.0)
        if self.kind == "sharp":  # odds below 2^-100 in some rows, 0 in others
            z[::2, 1] = z[::2].amax(1) + 72.0
            z[1::2, 0] += 500.0
        if self.kind == "odd":
            make_odd(z)
        z = z.to(self.dtype).to(device)
        if self.view == "across":  # classes first, as in images
            return z.T.contiguous().T
        if self.view == "images":
            return z.reshape(2, -1, self.classes).movedim(-1, 1).contiguous().movedim(1, -1)
        if self.view == "shifted":  # two regular steps, and a start that is not aligned
            memory = z.new_zeros(2, self.rows // 2 + 1, self.classes)
            memory[:, 1:] = z.reshape(2, -1, self.classes)
            return memory[:, 1:]
        return z

    def __str__(self) -> str:
        return "-".join(str(x).removeprefix("torch.") for x in self)


def make_odd(z: Tensor) -> None:
    """A NaN, one and two +inf, all -inf, some -inf, ties at the top, all equal; the last row is unchanged."""
    z[0, 1] = math.nan
    z[1, z.shape[1] // 2] = math.inf
    z[2, [0, -1]] = math.inf
    z[3] = -math.inf
    z[4, ::2] = -math.inf
    z[5, [0, -1]] = 60.0
    z[6] = 1.5


HALF, BRAIN, WIDE = torch.float16, torch.bfloat16, torch.float64
# Cases that differ in the code that they pass through: short and long rows, each dtype, each kind of row, each view.
CASES = [
    Case(5, 2),
    Case(70, 3, kind="odd"),
    Case(70, 10, kind="sharp"),
    Case(70, 10, BRAIN),
    Case(20, 10, WIDE, "flat"),
    Case(8, 48, HALF, "odd"),
    Case(9, 101, kind="sharp"),
    Case(9, 130, WIDE, "sharp"),
    Case(8, 257, BRAIN, "odd"),
    Case(8, 300, kind="flat"),
    Case(8, 1025, kind="wide"),
    Case(64, 5, view="across"),
    Case(34, 150, BRAIN, view="across"),
    Case(64, 7, WIDE, "odd", "images"),
    Case(6, 33, view="shifted"),
    Case(2, 17000, kind="flat"),
    Case(8, 17001, BRAIN, "odd"),
    Case(2, 17003, kind="sharp", view="shifted"),
    Case(4, 4100, WIDE),
]
# Classes first, and many of them: minutes in the interpreter.
LONG_CASES = [Case(16, 16385, view="across"), Case(16, 131072, kind="flat", view="across")]


def agree(path: str, case: Case, device: str = "cpu") -> None:
    """The operators of a path, "native" or "triton", give what the formulas of `core` give, forward and backward."""
    logits = case.logits(device)
    rtol = RTOL[torch.float64 if case.dtype == torch.float64 else torch.float32]
    rows = logits.shape[:-1]
    index = torch.arange(rows.numel(), device=device).reshape(rows) % (case.classes + 2) - 1
    known = [name for name in QUANTITIES if path == "native" or name not in NOT_BY_TRITON]
    for keep_dtype in (False, True):
        expected = columns_by_torch(logits, known, index, keep_dtype=keep_dtype)
        found = dict(zip(known, operators.columns(logits, known, index, keep_dtype), strict=True))
        if case.kind == "odd":  # the index that is no class has no standing, and an undefined row has none
            no_class = (index < 0) | (index >= case.classes) | expected["odds"].isnan() | expected["distance"].isinf()
            for name in ("lost", "ahead"):
                found[name], expected[name] = found[name][~no_class], expected[name][~no_class]
        for name in known:
            assert_near(found[name], expected[name], rtol, name)
    _agree_on_gradients(logits, rtol)
    wide = columns_by_torch(logits, (*COINS, "distance"), index)
    coins = Coins(*(wide[name] for name in COINS))
    for trials in (1, 2000, 100):
        every = torch.linspace(-1, trials + 1, rows.numel(), dtype=torch.float64, device=device).round().reshape(rows)
        for wins in (every, expected_wins(coins.loss, trials)):
            tails = tails_by_torch(wins, trials, coins.odds)
            for name, x, y in zip(("tail", "slope"), operators.log_tails(wins, trials, coins.odds), tails, strict=True):
                assert_near(x, y, 1e-10, name)
    _agree_on_tally([*coins[:5]], coins, index, wide["distance"], tails[0], case.classes)
    if path == "native":  # the rows in one pass give what their columns give
        *own, distance = operators.columns(logits, [*COINS, "distance"], index, False)
        log_p = tails_by_torch(expected_wins(own[2], 100), 100, own[1])[0]
        _agree_on_tally([logits], Coins(*own), index, distance, log_p, case.classes)


def _agree_on_gradients(logits: Tensor, rtol: float) -> None:
    """Any sum may have a gradient or none."""
    for names in (SUMS[1:], ("odds",), ("mass", "mass_squares"), ("top", "margin")):
        grads = []
        for sums in (lambda z: operators.row_sums(z, True), lambda z: sums_by_torch(z, True)):
            leaf = logits.detach().clone(memory_format=torch.preserve_format).requires_grad_()
            found = dict(zip(SUMS, sums(leaf), strict=True))
            # Each gradient is as large as one over its sum, to make all parts of the result of one size.
            sizes = {name: found[name].detach().abs().clamp_min(1e-30) for name in names}
            parts = [found[name] / sizes[name].where(found[name].detach() != 0, 1.0) for name in names]
            total = sum(part.nan_to_num().sum() for part in parts)
            grads.append(torch.autograd.grad(total, leaf)[0])
        actual, expected = grads
        size = expected.double().nan_to_num(0.0, 0.0, 0.0).abs().amax(-1, keepdim=True).clamp_min(1e-300)
        error = ((actual.double() - expected.double()) / size).nan_to_num(0.0)
        limit = max(20 * rtol, 2 * torch.finfo(logits.dtype).eps)
        assert torch.equal(actual.isnan(), expected.isnan()), names
        assert error.abs().max() <= limit, (names, error.abs().max(), limit)


def _agree_on_tally(
    given: list[Tensor], coins: Coins, target: Tensor, distance: Tensor, log_p: Tensor, classes: int
) -> None:
    counted = target != 1
    for labels in ((target, distance, counted), (target, distance, None), (None, None, None)):
        found, expected = (empty_tally(17, device=target.device) for _ in range(2))
        for total in (found, expected):  # in place, on top of what was there
            total.counts.add_(1)
        for trials, of_trials in ((100, log_p), (0, None)):
            operators.tally(given, labels, classes, trials, 0.05, *found)
            add_samples(expected, coins, of_trials, labels, classes, 0.05)
            for name, x, y in zip(Tally._fields, found, expected, strict=True):
                assert_near(x, y, 1e-9, name)


def agree_on_bets(endless: bool, with_mixed: bool, device: str = "cpu") -> None:
    """Bets by Triton, in batches, are those of `core` in the same batches, and in a single one."""
    generator = torch.Generator().manual_seed(0)
    p, evidence = torch.rand(2, 150, dtype=torch.float64, generator=generator).to(device)
    p[60:] **= 3
    p[:2], p[5::7] = math.nan, math.nan
    p[120], p[130] = 0.0, 1.0
    mixed = [evidence, torch.arange(150, device=device) // 2] if with_mixed else []
    results = []
    # The first batch has no p-value, and the third no sample; the last ones are in more than one block.
    for place, sizes in ((operators.martingale, (1, 4, 0, 75, 70)), (place_bets, (1, 4, 0, 75, 70)), (place_bets, 150)):
        state, path = StreamState(*(x.to(device) for x in empty_stream())), []
        for part, *others in zip(*(x.split(sizes) for x in (p, *mixed)), strict=True):
            path.append(place(part, count_valid(part == part, state.seen), others, 5.0, endless, *state))
        results.append([torch.cat(path), *state])
        assert 5 < state.alarm_at < state.seen
    for expected in results[1:]:
        for name, x, y in zip(("path", *StreamState._fields), results[0], expected, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-12, equal_nan=True, msg=f"{name}: {x} and {y}")


# What float32 cannot hold: odds of a class below 1e-38, and what is made of them.
ATOL = {"odds": 1e-34, "loss": 1e-34, "squares": 1e-60, "entropy_sum": 1e-32, "lost": 1e-34}


def assert_near(actual: Tensor, expected: Tensor, rtol: float, name: str) -> None:
    """Equal for integers; a logarithm and a share in [0, 1] may be off by `rtol` itself."""
    atol = rtol if name in ("concentration", "free_gap", "log_odds") else ATOL.get(name, 1e-300)
    if not expected.is_floating_point():
        rtol = atol = 0
    how = {"equal_nan": True, "msg": lambda text: f"{name}: {text}"}
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, **how)
