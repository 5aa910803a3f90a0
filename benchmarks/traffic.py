"""What the kernels move and compute, taken from the code that starts them: nothing here needs a GPU, or Triton."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_boc.core.tails import continued_steps
from torch_boc.kernels import coins, row_sums
from torch_boc.kernels.tails import empty_tails, log_p_value
from torch_boc.kernels.triton.cards import MOST_TRIALS_IN_PAIRS
from torch_boc.kernels.triton.geometry import geometry
from torch_boc.kernels.triton.launch import empty_gradient, empty_rows

# Instructions of the float64 pipe in the PTX of the tail, a division taken as ten of them: in each step of the
# continued fraction, and outside. tests/kernels/test_offline_samples.py counts them.
STEP_INSTRUCTIONS = 16
OTHER_INSTRUCTIONS = 345
# Instructions of a step in pairs of float32, none of them of the float64 pipe, in the code for an A100.
PAIR_INSTRUCTIONS = 80
# Instructions of one warp in the code for an A100 of the sums, on the shortest way: those of a program, and of a long
# row those of each block as well. tests/kernels/test_offline_samples.py counts them.
ROW_INSTRUCTIONS = {
    (10, torch.float32): (584, 0),
    (100, torch.float32): (609, 0),
    (1000, torch.float32): (474, 0),
    (50257, torch.float32): (357, 163),
    (128256, torch.float32): (350, 165),
    (10, torch.bfloat16): (594, 0),
    (100, torch.bfloat16): (625, 0),
    (1000, torch.bfloat16): (488, 0),
    (50257, torch.bfloat16): (352, 179),
    (128256, torch.bfloat16): (345, 181),
}


class Gpu(NamedTuple):
    """A device by its name in torch, with published peaks: bytes per second, and float64 operations per second.

    The latter without tensor cores. Beside them the bytes of the L2 cache, how many threads run at once, how many
    instructions of a warp are started per second: four in each cycle of each multiprocessor, at the boost clock; and
    how many multiprocessors there are.
    """

    device: str
    bandwidth: float
    float64: float
    cache: int
    threads: int
    issue: float
    processors: int


GPUS = {
    "A100": Gpu("A100-SXM4-80GB", 2039e9, 9.7e12, 40 * 2**20, 108 * 2048, 108 * 4 * 1.41e9, 108),
    "H100": Gpu("H100 80GB HBM3", 3350e9, 34e12, 50 * 2**20, 132 * 2048, 132 * 4 * 1.98e9, 132),
}
# Cards whose float64 is 64 or 32 times as slow as their float32.
SLOW_FLOAT64 = {
    "RTX 4090": Gpu("RTX 4090", 1008e9, 1.29e12, 72 * 2**20, 128 * 1536, 128 * 4 * 2.52e9, 128),
    "L4": Gpu("NVIDIA L4", 300e9, 0.473e12, 48 * 2**20, 58 * 1536, 58 * 4 * 2.04e9, 58),
    "T4": Gpu("Tesla T4", 320e9, 0.253e12, 4 * 2**20, 40 * 1024, 40 * 4 * 1.59e9, 40),
}
CARDS = GPUS | SLOW_FLOAT64


class Traffic(NamedTuple):
    """Bytes that a launch reads for the first time, reads a second time, and writes."""

    read: int
    again: int
    written: int

    @property
    def least(self) -> int:
        """Bytes from and to the memory if every second reading finds its row in the cache."""
        return self.read + self.written

    @property
    def most(self) -> int:
        """Bytes from and to the memory if none does."""
        return self.least + self.again


def rows_traffic(logits: Tensor) -> Traffic:
    """The sums: the logits once, or twice where a row is long, and the results of each row."""
    return Traffic(logits.nbytes, logits.nbytes if is_long(logits) else 0, _bytes(empty_rows(logits, False)))


def gradients_traffic(logits: Tensor) -> Traffic:
    """The gradient: the logits, their top classes and the gradients of the sums, each once; and itself."""
    prediction, top, *sums = empty_rows(logits, False)
    given = [logits, prediction, top, *(torch.empty_like(x) for x in (top, *sums))]
    return Traffic(_bytes(given), 0, empty_gradient(logits).nbytes)


def tails_traffic(logits: Tensor) -> Traffic:
    """The p-values: loss and odds of each row, and two results."""
    odds = empty_rows(logits, False)[2]
    return Traffic(2 * odds.nbytes, 0, _bytes(empty_tails(odds)))


def is_long(logits: Tensor) -> bool:
    """Whether a row does not fit on chip."""
    return "height" not in geometry(logits.shape[-1], logits.dtype)


def bytes_in_flight(logits: Tensor, gpu: Gpu) -> int:
    """Bytes of the long rows that the device works on at once, if threads are all that limits them."""
    threads = 32 * geometry(logits.shape[-1], logits.dtype)["num_warps"]
    return min(logits.shape[0], gpu.threads // threads) * logits[0].nbytes


def row_instructions(logits: Tensor) -> int:
    """Instructions that all warps of the sums start at least."""
    rows, classes = logits.shape
    how = geometry(classes, logits.dtype)
    program, block = ROW_INSTRUCTIONS[classes, logits.dtype]
    each = program + block * -(-classes // how["width"])
    return -(-rows // how.get("height", 1)) * how["num_warps"] * each


def split_seconds(logits: Tensor, gpu: Gpu, parts: int) -> float:
    """The least time of the instructions for few long rows, where the processor with the most programs decides.

    Split rows have three launches, each with what a program has beside its blocks.
    """
    rows, classes = logits.shape
    how = geometry(classes, logits.dtype)
    program, block = ROW_INSTRUCTIONS[classes, logits.dtype]
    blocks = -(-classes // how["width"])
    each = program * (1 if parts == 1 else 3) + block * -(-blocks // parts)
    return -(-rows * parts // gpu.processors) * how["num_warps"] * each * gpu.processors / gpu.issue


def row_seconds(logits: Tensor, gpu: Gpu) -> float:
    """The least time for the sums: that of their bytes or of their instructions, whichever is longer."""
    return max(rows_traffic(logits).least / gpu.bandwidth, row_instructions(logits) / gpu.issue)


def tail_instructions(trials: int, *, pairs: bool = False) -> int:
    """Instructions of the float64 pipe for one tail; steps in pairs of float32 have none."""
    return OTHER_INSTRUCTIONS + (0 if pairs else STEP_INSTRUCTIONS * continued_steps(trials))


def tail_seconds(tails: int, trials: int, gpu: Gpu) -> float:
    """The least time that the float64 pipe needs; its peak counts a fused multiply-add as two operations.

    Where float64 is slow, the steps are in pairs of float32 up to some trials, and may take longer than all else.
    """
    pairs = gpu in SLOW_FLOAT64.values() and trials <= MOST_TRIALS_IN_PAIRS
    seconds = 2 * tails * tail_instructions(trials, pairs=pairs) / gpu.float64
    steps = tails * PAIR_INSTRUCTIONS * continued_steps(trials) / (32 * gpu.issue) if pairs else 0.0
    return max(seconds, steps)


def probe_launches(logits: Tensor, trials: int = 100) -> tuple[int, int]:
    """How many launches the probe with its p-value has, and the bytes per row of those between the first and the last.

    The operator of the sums has two: the second takes odds and squares for the masses of all rows that are neither
    flat nor sharp.
    """
    with _Operators() as seen:
        _, _, odds, *rest = row_sums(logits, False)
        loss, *_ = coins(odds, *rest, logits.shape[-1])
        log_p_value(loss, trials, odds)
    return len(seen.moved) + 1, (_bytes([odds, *rest]) + sum(seen.moved[1:-1])) // len(logits)


class _Operators(TorchDispatchMode):
    """The bytes that each operator moves which starts something: not those of constants and views."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made, given = ([x for x in tree_leaves(tree) if isinstance(x, Tensor) and x.ndim] for tree in (result, args))
        if made and not any(x.alias_info for x in func._schema.returns):
            self.moved.append(_bytes(made) + _bytes(given))
        return result


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(x.nbytes for x in tensors)
