"""Times on the first GPU, as ratios to a softmax and to a copy of the same bytes: `python -m benchmarks.gpu`.

It prints a table in Markdown, to be pasted into an issue. Each number is the best of several rounds in which all calls
take turns. The GPU sleeps until all calls of a round are queued, and the host is timed by itself.
"""

import platform
import time
from collections.abc import Callable
from itertools import cycle

import torch
from torch import Tensor

import torch_boc
from torch_boc import BoCMetric, BoCPredictor
from torch_boc.functional import bag_of_coins, log_p_value
from torch_boc.functional.summary import DEFAULT_KEYS

SHAPES = ((1_000_000, 10), (131_072, 100), (16_384, 1_000), (512, 50_257), (256, 128_256))
DTYPES = (torch.float32, torch.bfloat16)
CALLS, ROUNDS, CACHES = 10, 10, 400e6  # bytes that stay in no cache
ROWS = 100_000  # of the predictor
Call = Callable[[Tensor], object]


def make_calls(rows: int, classes: int, device: torch.device) -> dict[str, Call]:
    """What is timed, by name."""
    target = torch.arange(rows, device=device) % classes
    whole, usual = (BoCMetric(keys=keys, validate_args=False).to(device) for keys in (None, DEFAULT_KEYS))

    def gradient(z: Tensor, *, heavy: bool) -> object:
        leaf = z.detach().requires_grad_()
        coins = bag_of_coins(leaf)
        return torch.autograd.grad((coins.gap + coins.concentration if heavy else coins.gap).sum(), leaf)

    return {
        "softmax": lambda z: z.softmax(-1),
        "copy": torch.clone,
        "coins": bag_of_coins,
        "p-value": lambda z: log_p_value(bag_of_coins(z)),
        "update": lambda z: usual.update(z, target),
        "update, all keys": lambda z: whole.update(z, target),
        "gradient of the gap": lambda z: gradient(z, heavy=False),
        "of the concentration too": lambda z: gradient(z, heavy=True),
    }


def time_call(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of a call on the GPU, and of the host."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(50_000_000)
    start.record()
    before = time.perf_counter()
    for _ in range(CALLS):
        run()
    host = time.perf_counter() - before
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / CALLS, host / CALLS


def time_shape(rows: int, classes: int, dtype: torch.dtype, device: torch.device) -> list[str]:
    """The rows of the table for logits of one shape."""
    logits = torch.randn(rows, classes, device=device).mul(3).to(dtype)
    batches = cycle([logits, *(logits.clone() for _ in range(int(CACHES / logits.nbytes)))])
    calls = make_calls(rows, classes, device)
    best = dict.fromkeys(calls, (float("inf"), float("inf")))
    for turn in range(ROUNDS + 1):  # the first compiles
        for name, call in calls.items():
            gpu, host = time_call(lambda call=call: call(next(batches)))  # type: ignore[misc]
            if turn:
                best[name] = min(gpu, best[name][0]), min(host, best[name][1])
    softmax, copy = best["softmax"][0], best["copy"][0]
    shape = f"{rows:,} × {classes:,} {str(dtype).removeprefix('torch.')}"
    return [
        f"| {shape} | {name} | {1e6 * gpu:,.0f} | {gpu / softmax:.2f} | {gpu / copy:.2f} | {1e6 * host:,.0f} |"
        for name, (gpu, host) in best.items()
    ]


def predictor_share(device: torch.device) -> str:
    """How much of the time of `BoCPredictor` the GPU computes the model, by events around it."""
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8)), torch.nn.Linear(2048, 1000)).to(
        device
    )
    events: list[torch.cuda.Event] = []

    def record(*_: object) -> None:
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()

    model.register_forward_pre_hook(record)
    model.register_forward_hook(record)
    predictor, inputs = BoCPredictor(model, device=device, progress=False, batch_size=1024), torch.randn(ROWS, 2048)
    for _ in predictor.predict(inputs[:4096]):
        events.clear()
    before = time.perf_counter()
    rows = sum(len(table["prediction"]) for table in predictor.predict(inputs))
    whole = time.perf_counter() - before
    busy = sum(start.elapsed_time(end) for start, end in zip(events[::2], events[1::2], strict=True)) / 1e3
    return (
        f"BoCPredictor, {rows:,} rows through 9 layers of 2,048: {whole:.2f} s, the model busy for {busy / whole:.0%}."
    )


def main() -> None:
    """Print the table."""
    if not torch.cuda.is_available():
        raise SystemExit("expected a CUDA device, got none")
    device = torch.device("cuda", 0)
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, torch_boc {torch_boc.__version__},")
    print(f"{platform.system()}, Python {platform.python_version()}\n")
    print("| logits | call | µs | × softmax | × copy | µs of the host |\n|---|---|---|---|---|---|")
    for rows, classes in SHAPES:
        for dtype in DTYPES:
            print("\n".join(time_shape(rows, classes, dtype, device)), flush=True)
            torch.cuda.empty_cache()
    print(f"\n{predictor_share(device)}")


if __name__ == "__main__":
    main()
