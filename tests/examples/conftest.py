"""Runs an example as a script does, in this process: the libraries that it imports are there already."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
# Warnings are errors in tests, but a script only prints them.
SCRIPT = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that runs an example with arguments, and returns what it printed on stdout."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()

    def run_example(name, *arguments):
        monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    yield run_example
    torch.set_num_threads(threads)
    torch.random.set_rng_state(state)
