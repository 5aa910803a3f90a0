"""Every block of code of the guide, the README and CONTRIBUTING is run, in the order of the page; every link holds."""

import json
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import torch_boc
from tests.data.cases import labelled
from tests.examples.blocks import FENCE, GUIDE, PAGES, SET_UP, blocks, commands
from tests.examples.conftest import SCRIPT
from torch_boc.cli import app, main
from torch_boc.functional import registry, scores

ROOT = GUIDE.parents[1]
README, CONTRIBUTING, PAGES_HOME = ROOT / "README.md", ROOT / "CONTRIBUTING.md", GUIDE / "index.md"
SENTENCE = " ".join(torch_boc.__doc__.split()[1:])
LINK = re.compile(r"\]\(([^)\s#:]*)(#[^)\s]*)?\)")
CODE = re.compile(r"`[^`\n]*`")
# All code that is not run. A block that is added here is shown to readers without a test: think twice.
NOT_RUN = {
    ("README.md", "pip install '.[lightning,eval,cli]'"),
    ("index.md", "pip install ."),
    ("index.md", "make demo"),
    ("fleet.md", "torchrun --nproc-per-node 8 predict.py"),
    ("fleet.md", "import ray"),
    ("fleet.md", "def decode(row):"),
    ("models.md", 'model = resnet18(weights="DEFAULT")'),
    ("models.md", "from torchvision.models import ViT_B_16_Weights, vit_b_16"),
    ("models.md", "from transformers import AutoTokenizer"),
    ("speed.md", "make bench"),
    ("speed.md", "python -m pytest -m gpu"),
    ("paper.md", "python -m benchmarks.paper vit"),
}


def run_page(path, names, monkeypatch):
    """Run the blocks of a page: its Python in one namespace, its commands in this folder."""
    for block in blocks(path.read_text(encoding="utf-8")):
        run_block(block, path, names, monkeypatch)


def run_block(block, path, names, monkeypatch):
    """Run a block of a page, unless a comment says why not."""
    if block.not_run is None and block.language == "python":
        # The lines before keep the numbers of lines in an error those of the page.
        exec(compile("\n" * block.line + block.text, str(path), "exec"), names)
    elif block.not_run is None and block.language == "bash" and not block.text.startswith("make "):
        run_commands(block.text, monkeypatch)


def run_commands(text, monkeypatch):
    """Run the commands of a block in this process, and compare their exit codes with what the page says."""
    for words, source, code in commands(text):
        assert words[0] == "torch-boc", f"cannot run {words}: mark the block with <!-- not run: why -->"
        with Path(source or os.devnull).open() as given:
            monkeypatch.setattr(sys, "stdin", given)
            with pytest.raises(SystemExit) as ended:
                main(words[1:])
        assert (ended.value.code or 0) == code, words


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty folder to run in; the random numbers of other tests do not depend on it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    yield tmp_path
    torch.random.set_rng_state(state)


@SCRIPT
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(GUIDE).as_posix())
def test_code_of_the_guide(path, folder, monkeypatch):
    run_page(path, {"__name__": "__main__"}, monkeypatch)


@SCRIPT
def test_code_of_the_readme(folder, monkeypatch):
    """Each block as if only it was pasted; the comments before it stand for the reader's model, data and files."""
    text = README.read_text(encoding="utf-8")
    for block in blocks(text.replace('"cuda"', '"cpu"')):
        names = {}
        for set_up in SET_UP.findall("".join(text.splitlines(keepends=True)[: block.line])):
            exec(set_up, names)
        run_block(block, README, names, monkeypatch)
    assert {"scores", "boc-report", "queue.csv"} <= {path.name for path in folder.iterdir()}


def test_the_first_screen_of_the_readme():
    """What it is, the commands, the three uses, the report, the decisions and the limits."""
    text = README.read_text(encoding="utf-8")
    words = "make demo", "BoCMetric", "BoCCallback", "BoCPredictor", "report_dark.png", "| Question", "**Limits.**"
    positions = [text.find(word) for word in (SENTENCE.split()[0], *words, "## Install")]
    assert min(positions) > 0
    assert positions == sorted(positions)
    assert len(text.encode()) <= 9_000
    assert [line for line in text.splitlines() if len(line) > 88 and line[:1] not in "|<" and line[:2] != "  "] == []


def test_one_sentence_describes_the_library():
    pages = [README, ROOT / "pyproject.toml", ROOT / "examples/site/mkdocs.yml", ROOT / "CITATION.cff", PAGES_HOME]
    texts = {path.name: " ".join(path.read_text(encoding="utf-8").split()) for path in pages}
    assert [name for name, text in texts.items() if SENTENCE not in text] == []
    assert SENTENCE in " ".join(app.HELP.split())


def test_blocks_that_are_not_run_are_listed():
    not_run = set()
    for name, block in all_blocks():
        assert block.language in ("python", "bash", "text")
        if block.not_run is not None:
            first = next(line for line in block.text.splitlines() if not line.startswith("#"))
            not_run.add((name, first.split("  ")[0]))
    assert not_run == NOT_RUN


def test_code_is_at_most_88_wide():
    assert [x for name, block in all_blocks() for x in block.text.splitlines() if len(x) > 88] == []


def all_blocks():
    """The blocks of the README and of all pages, each with the name of its page."""
    return [(page.name, x) for page in (README, *PAGES) for x in blocks(page.read_text(encoding="utf-8"))]


def anchors(text):
    """The anchors of the headings of a page, as code hosts and the site make them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles)
    return {re.sub(r"[-\s]+", "-", x) for x in words}


def test_links_hold():
    """A link names a file of the repository, and a heading that is there."""
    for page in (README, CONTRIBUTING, *PAGES):
        for link, anchor in LINK.findall(CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))):
            target = (page.parent / link).resolve() if link else page
            assert target.exists(), f"{page.name}: {link}"
            assert target.is_relative_to(ROOT)
            if anchor:
                assert anchor[1:] in anchors(target.read_text(encoding="utf-8")), f"{page.name}: {link}{anchor}"


def test_the_examples_of_additions(monkeypatch):
    """The indented blocks of CONTRIBUTING that the page "Extending torch_boc" shows."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    shown = text[text.index("[start:additions]") : text.index("[end:additions]")]
    monkeypatch.setitem(registry.registered, "halved", None)  # forgotten after the test
    names = {"torch": torch, "Tensor": Tensor, "Any": Any, "json": json, "Path": Path}
    for block in re.findall(r"\n\n((?: {4}.*\n|\n(?= {4}))+)", shown):
        exec(textwrap.dedent(block), names)
    logits, target = labelled()
    assert scores["halved"](logits).amax() <= 0.5
    assert names["Halfway"]().fit(logits, target).calibrate(logits).confidence.shape == target.shape
    recorder = names["Recorder"]()
    recorder.on_batch_end(logits, (None, target))
    assert "boc_gap" in recorder.on_epoch_end()
