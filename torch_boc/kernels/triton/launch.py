"""The five operators by Triton kernels: which kernel, how many rows per program, how many threads.

Every kernel is started by `launch`, on the device of its tensors, which need not be the current one. The first launch
of a kernel loads its code, for which the host must wait: while a CUDA graph is captured, this is a `NotLoadedError`.
Nothing is read back, and all shapes follow from those of the arguments, so that a CUDA graph can hold everything.
"""

import importlib.util
import logging
import os
import struct
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ...core.coins import gap_of_sums
from ...core.dtypes import accumulation_dtype, constant
from ...core.martingale import EXPONENTS
from ...core.row_numbers import columns as columns_by_torch
from ...core.row_numbers import distance_below_top, dtypes_of
from ...core.schema import EXPONENT, LARGEST, Labels
from ...core.tails import continued_steps
from ..layout import Layout, geometry, layout_of, mass_geometry, readable

HAS_TRITON = importlib.util.find_spec("triton") is not None
# The types of devices for which Triton makes code.
DEVICES = ("cuda", "xpu")
# The rows of a block of numbers; each thread takes one row. Roundings are as in torch.
BLOCK, WARPS = 128, 4
OPTIONS = {"block": BLOCK, "num_warps": WARPS, "enable_fp_fusion": False}
# Of bets: so many threads that nothing spills, each with two samples of a strategy.
BETS = {"block": 64, "num_warps": 16, "enable_fp_fusion": True}
OF_COINS = ("mass", "mass_squares", "log_odds", "loss", "concentration", "free_gap")
# The most classes of rows that leave registers for more: for their coins in the kernel that reads them, and for the
# generalized entropy in a kernel of its own.
MOST_FUSED_CLASSES = MOST_ENTROPY_CLASSES = 1024
# The most bins whose sums a program keeps in registers; the most programs, each with a column in the table of sums.
MOST_WIDTH, MOST_PROGRAMS = 16, 2048
_log = logging.getLogger(__name__)


class NotLoadedError(RuntimeError):
    """A kernel would have to be loaded while a CUDA graph is captured, which is not possible."""


def load(name: str) -> Any:
    """The module of kernels called `name`. It is imported at the first launch, because it needs Triton."""
    return import_module(f"{__package__}.{name}")


def available(device: str) -> bool:
    """Whether Triton kernels can run on this type of device: a GPU, or any device with Triton's interpreter."""
    if device in DEVICES and not HAS_TRITON:
        _log_missing()
    return HAS_TRITON and (device in DEVICES or interpreted())


@cache
def _log_missing() -> None:
    _log.info("Triton is not installed: torch's own operations compute on a GPU, which is slower")


def interpreted() -> bool:
    """Whether Triton interprets its kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def has_ptx(device: torch.device) -> bool:
    """Whether kernels may have instructions of NVIDIA's GPUs in them."""
    return device.type == "cuda" and torch.version.hip is None and not interpreted()


def launch(kernel: Any, grid: tuple[int, ...], like: Tensor, *arguments: Any, **options: Any) -> None:
    """Start `kernel` on the device of `like`; this is the one place where kernels are started."""
    if like.device.type == "cpu":
        kernel[grid](*arguments, **options)
        return
    with torch.get_device_module(like.device).device(like.device.index):
        if is_capturing(like.device):
            _check_loaded(kernel, grid, arguments, options)
        kernel[grid](*arguments, **options)


def is_capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is captured on the current stream of this device; this opens no context."""
    if device.type != "cuda" or not torch.cuda.is_initialized():
        return False
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def _check_loaded(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise if this kernel was never launched before with arguments of these types."""
    compiled = kernel.warmup(*arguments, grid=grid, **options)  # from Triton's memory, or compiled without a launch
    if getattr(compiled, "module", compiled) is None:
        raise NotLoadedError(
            "expected kernels that ran before, got a new one while a CUDA graph is captured, when it cannot be loaded: "
            "call the same function once on such a batch before the capture, or capture within "
            'torch_boc.kernels.use("torch")'
        )


def columns(logits: Tensor, names: Sequence[str], index: Tensor | None, keep_dtype: bool) -> list[Tensor]:
    """The numbers with these names; real ones are in the dtype of the sums if `keep_dtype`, otherwise in float64."""
    shape, asked = logits.shape[:-1], {*names}
    if not logits.numel():
        return [logits.new_empty(shape, dtype=kind) for kind in dtypes_of(tuple(names), logits.dtype, keep_dtype)]
    original, logits = logits, readable(logits)
    layout = layout_of(logits)

    def new(*wanted: str, keep_dtype: bool = keep_dtype) -> dict[str, Tensor]:
        kinds = dtypes_of(wanted, logits.dtype, keep_dtype)
        return {name: logits.new_empty(shape, dtype=kind) for name, kind in zip(wanted, kinds, strict=True)}

    def start(kernel: str, cut: dict[str, Any], *arguments: Tensor | None, **options: Any) -> None:
        _launch_over_rows("rows", kernel, logits, layout, cut, arguments, **options)

    on_chip = "gen" in asked and layout.classes <= MOST_ENTROPY_CLASSES
    more = ("entropy_sum", "margin") if not asked.isdisjoint(("entropy_sum", "margin")) else ()
    out = new("prediction", "top", "odds", "squares", *more, keep_dtype=True)
    sums = [*out.values(), *[None] * (2 - len(more))]
    out |= new(*[name for name in OF_COINS if name in asked or (on_chip and name == "log_odds")])
    of_coins = [out.get(name) for name in OF_COINS]
    with_coins = any(x is not None for x in of_coins)
    fused = with_coins and layout.classes <= MOST_FUSED_CLASSES
    again, heavy = mass_geometry(layout), geometry(layout.classes, logits.dtype, across=layout.across, heavy=True)
    cut = heavy if fused else geometry(layout.classes, logits.dtype, across=layout.across)
    if "height" in cut:
        start("short_rows", cut, *sums, *(of_coins if fused else [None] * len(of_coins)), with_coins=fused)
    else:
        start("long_rows", cut, *sums)
    if with_coins and not fused:
        start("coins", again, out["top"], out["odds"], out["squares"], *of_coins)
    if "gap" in asked:
        out["gap"] = gap_of_sums(out["odds"], out["squares"], layout.classes)
    if on_chip:
        out |= new("gen")
        rows = [out[name] for name in ("prediction", "top", "log_odds", "gen")]
        bit = 62 if accumulation_dtype(logits.dtype) == torch.float64 else 30
        options = {"exponent": EXPONENT, "most": LARGEST - 1, "all_count": layout.classes <= LARGEST}
        start("generalized_entropy", heavy, *rows, **options, highest_bit=bit)
    elif "gen" in asked:
        out |= columns_by_torch(original, ("gen",))
    if index is not None and "distance" in asked:
        out["distance"] = distance_below_top(original, index.unsqueeze(-1), out["prediction"])
    if index is not None and not asked.isdisjoint(("lost", "ahead")):
        out |= new("lost", "ahead")
        start("class_rank", again, index.contiguous(), out["lost"], out["ahead"])
    kinds = dtypes_of(tuple(names), logits.dtype, keep_dtype)
    return [out[name].to(kind) for name, kind in zip(names, kinds, strict=True)]


def gradient(logits: Tensor, sums: Sequence[Tensor], grads: Sequence[Tensor | None], out: Tensor) -> None:
    """Fill the gradient of the logits; `sums` are prediction, top, odds and mass."""
    _, top, _, mass = sums
    like = [top, top, mass, mass, mass, top, top]
    # The two masses either both have a gradient or none; the same is true of the two extras.
    needed = [True, True, True] + [any(x is not None for x in grads[i : i + 2]) for i in (3, 3, 5, 5)]
    filled = [
        x if x is not None else torch.zeros_like(kind) if need else None
        for x, kind, need in zip(grads, like, needed, strict=True)
    ]
    arguments = [x if x is None else x.contiguous() for x in (*sums, *filled, out)]
    logits = readable(logits)
    layout = layout_of(logits)
    cut = geometry(layout.classes, logits.dtype, across=layout.across, heavy=needed[3])
    kernel = "short_gradient" if "height" in cut else "long_gradient"
    _launch_over_rows("gradient", kernel, logits, layout, cut, arguments)


def _launch_over_rows(
    module: str,
    kernel: str,
    logits: Tensor,
    layout: Layout,
    cut: dict[str, Any],
    arguments: Sequence[Tensor | None],
    **options: Any,
) -> None:
    """Start a kernel that reads logits, which are cut in this way; a product and a sum may become one operation."""
    dtype = accumulation_dtype(logits.dtype)
    fast = dtype == torch.float32 and has_ptx(logits.device)
    options |= {"bits": layout.bits, "dtype": load("common").DTYPES[dtype], "fast": fast, "enable_fp_fusion": True}
    grid = (-(-layout.rows // cut.get("height", 1)),)
    launch(getattr(load(module), kernel), grid, logits, logits, *arguments, *layout.numbers, **cut, **options)


def tally(
    coins: Sequence[Tensor], labels: Labels, num_classes: int, trials: int, alpha: float, *states: Tensor
) -> None:
    """Add samples to the tensors of a tally, in place, in two launches."""
    counts, sums, gap_histogram, bin_counts, bin_sums = states
    size, bins, number = coins[0].numel(), bin_sums.shape[1], sums.numel() + bin_sums.numel()
    if not size:
        return
    samples = [x if x is None else x.reshape(-1).contiguous() for x in (*coins, *labels)]
    blocks = -(-size // BLOCK)
    turns = -(-blocks // MOST_PROGRAMS)
    programs, width = -(-blocks // turns), min(MOST_WIDTH, 1 << (bins - 1).bit_length())
    table = sums.new_empty(number, programs)
    numbers = (size, num_classes - 1, trials, continued_steps(trials), _bits(alpha), bins, turns)
    arguments = (*samples, counts, gap_histogram, bin_counts, table, *numbers)
    kernels = load("tally")
    grid, options = (programs, -(-bins // width)), {"tails": trials > 0, "width": width, **OPTIONS}
    launch(kernels.tally, grid, counts, *arguments, **options)
    launch(kernels.collect, (number,), counts, table, sums, bin_sums, sums.numel(), programs, **OPTIONS)


def _bits(number: float) -> int:
    """A float64 as the integer with the same bits: Triton would round a float to float32."""
    return struct.unpack("<q", struct.pack("<d", number))[0]  # type: ignore[no-any-return]


def log_tails(wins: Tensor, trials: int, odds: Tensor) -> tuple[Tensor, Tensor]:
    """The log tails and their derivatives in the odds; a thread computes one tail, and reads no table."""
    wins, odds = wins.contiguous(), odds.contiguous()
    out, slope = torch.empty_like(odds), torch.empty_like(odds)
    if size := odds.numel():
        arguments = (wins, odds, out, slope, size, trials, continued_steps(trials))
        launch(load("tails").log_tails, (-(-size // BLOCK),), odds, *arguments, **OPTIONS)
    return out, slope


def martingale(
    p: Tensor, number: Tensor, mixed: Sequence[Tensor], bound: float, endless: bool, *states: Tensor
) -> Tensor:
    """Bet on p-values of a stream, and write its state in place, in one launch of one program."""
    p, evidence = p.contiguous(), p.new_empty(len(p))
    arguments = (p, number, *(mixed or (None, None)), constant(EXPONENTS, p), evidence, *states, len(p), _bits(bound))
    launch(load("martingale").martingale, (1,), p, *arguments, endless=endless, **BETS)
    return evidence
