"""What 1e9 images and 1e12 tokens would take on 8, 64 and 512 GPUs: `python -m benchmarks.estimate`.

Writes results/estimate.md. It is an estimate: bytes and CPU times are measured by this script, on this
machine; what a GPU and a storage do is assumed, and stands in the page. Nothing here has run on a GPU.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torchvision.io import decode_jpeg, encode_jpeg
from torchvision.transforms.v2.functional import resize

from benchmarks.harness import RESULTS, machine, markdown_table, write_page
from torch_boc.data.parquet import ParquetFile
from torch_boc.nn.decision_columns import SampleColumns

GPUS = (8, 64, 512)
NODE = 8  # GPUs


class Assumed(NamedTuple):
    """What is not measured here."""

    flops: float = 4e14  # sustained by one GPU, bfloat16: about 40 % of the peak of an H100
    bandwidth: float = 2.7e12  # bytes a second of one GPU's memory: about 80 % of the peak of an H100
    cores: int = 96  # CPU cores of a node of 8 GPUs
    read: float = 2e9  # bytes a second that a node reads from shared storage
    write: float = 1e9  # bytes a second that a node writes there


class Work(NamedTuple):
    """One kind of job: the number of samples, and the costs of each of them."""

    name: str
    samples: float
    read_bytes: float
    cpu_seconds: float
    flops: float
    logit_bytes: float
    write_bytes: float
    write_seconds: float


def core_seconds(run: Callable[[], object], repeats: int = 7) -> float:
    """The least CPU time of a call with one thread."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def jpeg() -> torch.Tensor:
    """A JPEG of 500 x 375 with about the bytes of a photograph."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(3, 94, 125, generator=generator)
    image = resize(coarse, [375, 500], antialias=True) + 0.08 * torch.rand(3, 375, 500, generator=generator)
    return encode_jpeg((255 * image.clamp(0, 1)).to(torch.uint8), quality=90)


def table_costs(classes: int, rows: int = 50_000) -> tuple[float, float]:
    """Bytes and core seconds of a row of Parquet with the index and all columns of a predictor."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator) * 3
    columns = {"index": torch.arange(rows), **SampleColumns()(logits)}

    def write() -> None:
        with ParquetFile(path) as file:
            file.write(columns)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        seconds = core_seconds(write)
        return path.stat().st_size / rows, seconds / rows


def measured() -> list[Work]:
    """The jobs with their measured costs."""
    torch.set_num_threads(1)
    picture = jpeg()
    decode = core_seconds(lambda: resize(decode_jpeg(picture), [224, 224], antialias=True))
    size, seconds = table_costs(1000)
    image = (1e9, float(len(picture)), decode)
    token_bytes = 4.0  # a token id
    return [
        Work("images, ResNet-50, 1,000 classes", *image, 8.2e9, 1000 * 2, size, seconds),
        Work("images, ViT-B/16, 1,000 classes", *image, 35e9, 1000 * 2, size, seconds),
        Work("tokens, 1 billion parameters, one row each", 1e12, token_bytes, 0, 2e9, 128_256 * 2, size, seconds),
        Work("tokens, 8 billion parameters, one row each", 1e12, token_bytes, 0, 16e9, 128_256 * 2, size, seconds),
        Work("tokens, 8 billion parameters, sums only", 1e12, token_bytes, 0, 16e9, 128_256 * 2, 0, 0),
    ]


def parts(work: Work, gpus: int, assumed: Assumed) -> dict[str, float]:
    """Seconds of each part, if nothing else ran on these GPUs. They overlap, and the longest one limits."""
    nodes = gpus / NODE
    return {
        "reading": work.samples * work.read_bytes / (assumed.read * nodes),
        "decoding": work.samples * work.cpu_seconds / (assumed.cores * nodes),
        "model": work.samples * work.flops / (assumed.flops * gpus),
        "probe": work.samples * work.logit_bytes / (assumed.bandwidth * gpus),
        "writing": work.samples * max(work.write_bytes / assumed.write, work.write_seconds / assumed.cores) / nodes,
    }


def span(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def page(works: list[Work], assumed: Assumed) -> str:
    """The estimate in Markdown."""
    head = ["job", "GPUs", "reading", "decoding", "model", "probe", "writing", "limited by"]
    rows = []
    for work in works:
        for gpus in GPUS:
            seconds = parts(work, gpus, assumed)
            rows.append([work.name, str(gpus), *map(span, seconds.values()), max(seconds, key=lambda x: seconds[x])])
    costs = [_costs(work) for work in works]
    names = ["job", "bytes read", "decoding, core ms", "model, GFLOP", "logits, bytes", "bytes written"]
    return f"""# Estimate: 1e9 images, 1e12 tokens

Made by `python -m benchmarks.estimate`. **Nothing here has run on a GPU.** Each time is that of one part without
the others; the parts overlap, and the longest one limits the run.

{markdown_table(head, rows)}

What goes in, for each sample. Bytes read and written and the core times are measured ({machine()}): a
synthetic JPEG of 500 x 375, and a row of Parquet with the index and all columns of the predictor.

{markdown_table([*names, "writing, core µs"], costs)}

Assumed for each GPU: {assumed.flops:.0e} FLOP/s sustained and {assumed.bandwidth:.1e} bytes/s of memory. For each node
of {NODE} GPUs: {assumed.cores} cores, {assumed.read:.0e} bytes/s read and {assumed.write:.0e} bytes/s written. The FLOP
are twice the multiplications of the forward pass: 4.1e9 and 17.6e9 for the two networks of images, and the number of
parameters for each token. The probe reads each logit once, in bfloat16; classes are 1,000 and 128,256.

- Reading limits images: faster storage helps, more GPUs of one node do not. The probe never matters.
- The model limits tokens. One row per token, 1e12 rows, is {works[-2].write_bytes:.0f} TB of Parquet. For the
  summary, keep sums (`BoCMetric`, `torch_boc.ray.summarize`), which are a few kilobytes.
"""


def _costs(work: Work) -> list[str]:
    core = f"{1e3 * work.cpu_seconds:.2f}", f"{work.flops / 1e9:,.1f}"
    written = f"{work.logit_bytes:,.0f}", f"{work.write_bytes:.0f}", f"{1e6 * work.write_seconds:.2f}"
    return [work.name, f"{work.read_bytes:,.0f}", *core, *written]


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "estimate.md")
    args = parser.parse_args()
    write_page(args.output, page(measured(), Assumed()))


if __name__ == "__main__":
    main()
