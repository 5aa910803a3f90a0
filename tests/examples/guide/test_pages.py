"""What holds for the text of the pages, wherever they are read: links on a code host, and examples of additions."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.data.cases import labelled
from tests.examples.guide.blocks import FENCE, GUIDE, PAGES
from torch_boc import BoCMetric
from torch_boc.calibration import Calibrated, Calibrator, TemperatureScaling
from torch_boc.calibration.base import coins_of
from torch_boc.data import find_logits
from torch_boc.data.finding import find_target
from torch_boc.functional import Evidence, registry, scores
from torch_boc.functional.registry import register
from torch_boc.report.parts import Cell, Table, Topic

ROOT = GUIDE.parents[1]
LINK = re.compile(r"\]\(([^)\s#:]*)(#[^)\s]*)?\)")
CODE = re.compile(r"`[^`\n]*`")
# What the files that CONTRIBUTING.md names import already.
NAMES = {
    **{x.__name__: x for x in (BoCMetric, Calibrated, Calibrator, Cell, Evidence, Path, Table, TemperatureScaling)},
    **{x.__name__: x for x in (Tensor, Topic, coins_of, find_logits, find_target, json, register, torch)},
    "Any": Any,
}


def anchors(text):
    """The anchors of the headings of a page, as code hosts and the site make them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles)
    return {re.sub(r"[-\s]+", "-", x) for x in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(GUIDE).as_posix())
def test_links_hold_on_a_code_host(page):
    """A link names a file beside the page, or elsewhere in the repository, and a heading that is there."""
    text = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    for link, anchor in LINK.findall(text):
        target = (page.parent / link).resolve() if link else page
        assert target.is_file(), link
        assert target.is_relative_to(ROOT)
        if anchor:
            assert anchor[1:] in anchors(target.read_text(encoding="utf-8")), f"{link}{anchor}"


def test_the_examples_of_additions_run(monkeypatch):
    """The indented blocks of CONTRIBUTING.md that the page "Adding things" shows, with what their files import."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = text[text.index("[start:additions]") : text.index("[end:additions]")]
    code = [textwrap.dedent(x) for x in re.findall(r"\n\n((?: {4}.*\n|\n(?= {4}))+)", shown)]
    monkeypatch.setitem(registry.registered, "halved", None)  # forgotten after the test
    names = dict(NAMES)
    for block in code:
        exec(block, names)
    assert len(code) == 5
    logits, target = labelled()
    assert scores["halved"](logits).amax() <= 0.5
    calibrated = names["Halfway"]().fit(logits, target).calibrate(logits)
    assert calibrated.confidence.shape == target.shape
    assert names["WEATHER"].title == "Weather"
    recorder = names["Recorder"]()
    recorder.on_batch_end(logits, (None, target))
    assert "boc_gap" in recorder.on_epoch_end()


def test_a_json_file_is_read_as_the_example_says(tmp_path):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = dict(NAMES)
    exec(textwrap.dedent(re.search(r"(?: {4}.*\n)*? {4}def read_json.*\n(?: {4,}.*\n)+", text)[0]), names)
    (tmp_path / "logits.json").write_text(json.dumps({"logits": [[1.0, 2.0]]}))
    assert names["read_json"](tmp_path / "logits.json")["logits"].tolist() == [[1.0, 2.0]]
