"""The benchmark of recording measures shares of a `generate` that it really recorded."""

import torch

from benchmarks.generation import contestants, measure
from tests.transformers.cases import gpt2, prompts


def test_rows():
    rows = measure(gpt2().eval(), prompts((5, 5)), tokens=6, seconds=0.1)
    assert [row["ratio"].split(",")[0] for row in rows] == [
        "recorded / bare generate",
        "inside the recorder / bare generate",
        "bytes for each token",
    ]
    inside, whole = rows[1]["measured"], rows[0]["measured"]
    assert 0 < inside < whole
    assert rows[2]["measured"] == round(80 * 64 / 6, 3)  # a whole piece of the buffers, for six tokens


def test_both_runs_emit_the_same_number_of_tokens():
    runs, recorder = contestants(gpt2().eval(), prompts((5, 5)), 6)
    assert runs["bare"]().shape == (2, 11)
    runs["recorded"]()
    assert [len(record) for record in recorder.trace.records] == [6, 6]
    assert recorder.best < float("inf")
    assert torch.tensor(recorder.spent) == 0
