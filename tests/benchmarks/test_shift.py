"""What networks do on shifted data, from stand-ins of a folder of data to the page."""

import shutil
import sys
from importlib import import_module

import pandas as pd
import pytest
import torch

from benchmarks.paper import shift
from benchmarks.paper.models import CifarResNet
from tests.benchmarks.stand_ins import spread
from torch_boc import zoo

LOAD = """
from pathlib import Path
from PIL import Image
from tests.benchmarks import stand_ins
HERE = Path(__file__).parent
def images(name):
    return stand_ins.pictures(60, 0)
def pictures(name):
    return ((Image.fromarray(x), label) for x, label in zip(*stand_ins.pictures(40, 1)))
"""


def test_every_script_can_be_imported():
    for path in shift.FOLDER.parent.rglob("[!_]*.py"):
        import_module(".".join(path.relative_to(shift.ROOT).with_suffix("").parts))


def test_from_images_to_the_page_and_again_from_what_is_kept(tmp_path, monkeypatch):
    (tmp_path / "load.py").write_text(LOAD)
    torch.save({"state_dict": spread(CifarResNet(head="linear")).state_dict()}, tmp_path / "cifar10_resnet20.th")
    shutil.copy(shift.FOLDER / "shift_template.md", tmp_path)
    monkeypatch.setattr(shift, "FOLDER", tmp_path)
    monkeypatch.setattr(shift, "TABLE", tmp_path / "shift.csv")
    monkeypatch.setattr(zoo, "names", lambda: ())
    options = ["--data-dir", str(tmp_path), "--cache", str(tmp_path / "cache")]
    monkeypatch.setattr(sys, "argv", ["shift", "resnet20", *options])
    shift.main()
    page, table = (tmp_path / "shift.md").read_text(encoding="utf-8"), pd.read_csv(tmp_path / "shift.csv")
    assert len(table) == 5
    assert table["accuracy out"].notna().sum() == 3
    assert (table["forced out"] > 0.9).all()
    monkeypatch.setattr(shift, "BoCPredictor", pytest.fail)  # the logits are kept
    shift.main()
    assert (tmp_path / "shift.md").read_text(encoding="utf-8") == page
    assert (tmp_path / "shift.png").exists()


def test_corruptions_grow_and_keep_their_kind():
    pixels = torch.randint(0, 256, (9, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    away = torch.stack([(shift.corrupted(pixels, k).float() - pixels).abs().mean((1, 2, 3)) for k in range(3)])
    assert (away.diff(dim=0) > 0).all()
