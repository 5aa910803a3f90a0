"""README and guide quote the headline numbers of the one committed file, and the file is that of the code."""

import json
from pathlib import Path

import pytest

from benchmarks.headline import PAGE, headline
from torch_boc import zoo
from torch_boc.report.words import number, percent

ROOT = Path(__file__).parents[2]
FOUND = json.loads(PAGE.read_text(encoding="utf-8"))


def over_all(name, digits=1):
    values = sorted(model[name] for model in FOUND.values())
    return "–".join(number(x, digits, 100) for x in (values[0], values[-1]))


def test_pages_quote_the_file():
    resnet, delays = FOUND["resnet20-cifar10"], sorted(model["delay"] for model in FOUND.values())
    others = sorted(model["detection_rate"] for name, model in FOUND.items() if name != "minilm-clinc150")
    readme, decide = ((ROOT / x).read_text(encoding="utf-8") for x in ("README.md", "examples/guide/decide.md"))
    quoted = {
        f"ECE {percent(resnet['ece'])}, {percent(resnet['calibrated_ece'])} after calibration": (readme,),
        f"at {over_all('coverage', 0)} % coverage": (readme, decide),
        f"measured FPR {over_all('fpr')} %": (readme,),
        f"detects {over_all('detection_rate')} % of OOD samples": (readme,),
        f"{100 * others[0]:.0f}–{100 * others[-1]:.0f} % on the three other models": (readme,),
        f"{delays[0]:.0f}–{delays[-1]:.0f} samples": (readme, decide),
    }
    missing = [text for text, pages in quoted.items() for page in pages if text not in page]
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names())
def test_the_file_is_that_of_the_code(name):
    """If this fails, run `python -m benchmarks.headline`."""
    assert headline(zoo.load(name)) == pytest.approx(FOUND[name], abs=1.01e-4)
