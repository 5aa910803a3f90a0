"""Time greedy `generate` with and without recording: `python -m benchmarks.generation FOLDER [--gguf FILE]`.

A real language model, a batch of 1 and of 8, both in turns. Writes results/generation.csv; recording should take at
most 3 % of the time of `generate`, and 128 bytes for each token. Two calls of `generate` can differ by as much on a
shared machine, so the time inside of the recorder's own calls, in its best run, is written next to the ratio of whole
calls.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from benchmarks.harness import RESULTS, best_times, ratio, target, write_csv
from torch_boc.transformers import generation

# The most that recording may take of `generate`, and of memory for each token, in bytes.
LIMIT, MOST_BYTES = 0.03, 128
PROMPTS = ["The history of the city begins", "To sort a list in Python", "My favourite meal is", "In 1969, people"] * 2


class Clocked(generation.Recording):
    """The recording, the time that the last run spent in its calls, and the least of all runs."""

    best = float("inf")
    last: "Clocked"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.spent, Clocked.last = 0.0, self

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """The call with a clock around it."""
        start = time.perf_counter()
        result = super().__call__(input_ids, scores)
        self.spent += time.perf_counter() - start
        return result


def contestants(model: Any, inputs: dict[str, Any], tokens: int) -> dict[str, Callable[[], object]]:
    """A run of `generate` without recording and one with it. Sequences do not end early."""
    recorder = generation.BoCGeneration(model)
    options = {**inputs, "max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}

    def recorded() -> None:
        recorder.generate(**options)
        Clocked.best = min(Clocked.best, Clocked.last.spent)

    return {"bare": lambda: model.generate(**options), "recorded": recorded}


def measure(model: Any, inputs: dict[str, Any], tokens: int, seconds: float) -> list[dict[str, object]]:
    """The rows of the table for one batch."""
    Clocked.best = float("inf")
    best = best_times(contestants(model, inputs, tokens), seconds=seconds)
    held = sum(row.nbytes for row in Clocked.last.rows)
    batch, step = len(inputs["input_ids"]), round(1e3 * best["bare"] / tokens, 2)
    setting = f"{model.config.vocab_size} classes, batch of {batch}"
    results = {
        f"recorded / bare generate, {setting}": (ratio(best, "recorded", "bare"), 1.0 + LIMIT),
        f"inside the recorder / bare generate, {setting}": (Clocked.best / best["bare"], LIMIT),
        f"bytes for each token, {setting}": (held / (batch * tokens), MOST_BYTES),
    }
    rows = [target(name, value, limit) for name, (value, limit) in results.items()]
    return [row | {"bare step ms": step, "recorder ms": round(1e3 * Clocked.best / tokens, 3)} for row in rows]


def main() -> None:
    """Run, print the targets, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a folder with a causal language model that transformers can load")
    parser.add_argument("--gguf", help="the name of a GGUF file in this folder")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--dry", action="store_true", help="write no table")
    args = parser.parse_args()
    logging.set_verbosity_error()
    generation.Recording = Clocked  # type: ignore[misc]
    options = {"gguf_file": args.gguf} if args.gguf else {}
    tokenizer = AutoTokenizer.from_pretrained(args.folder, padding_side="left", **options)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32, **options).eval()
    rows = []
    for batch in (1, 8):
        inputs = dict(tokenizer(PROMPTS[:batch], return_tensors="pt", padding=True))
        rows += measure(
            model, {name: inputs[name] for name in ("input_ids", "attention_mask")}, args.tokens, args.seconds
        )
    if not args.dry:
        write_csv(RESULTS / "generation.csv", rows)


if __name__ == "__main__":
    main()
