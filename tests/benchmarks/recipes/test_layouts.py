"""Data in the layouts that the examples read."""

import json
from types import SimpleNamespace

from benchmarks.recipes.layouts import write_intents
from benchmarks.recipes.trained import example


def test_intents_are_read_again_by_the_example(tmp_path):
    parts = {"train": (["a “b”", "c"], ["two", "one"]), "oos_val": (["d"], ["oos"])}
    write_intents(SimpleNamespace(intents=lambda: parts), tmp_path / "data_full.json")
    written = json.loads((tmp_path / "data_full.json").read_text(encoding="utf-8"))
    assert written == {"train": [["a “b”", "two"], ["c", "one"]], "oos_val": [["d", "oos"]]}
    read = example("lightning_minilm_clinc150").read_intents(tmp_path)
    assert read == {"train": (["a “b”", "c"], [1, 0]), "oos_val": (["d"], [0])}
