"""README and guide quote the headline numbers of the one committed file, and the file is that of the code."""

import csv
import json
from pathlib import Path

import pytest

from benchmarks.axes import panels
from benchmarks.headline import PAGE, headline
from benchmarks.recipes.pictures import NAMES, draw_acceptance, draw_flags, draw_streams
from torch_boc import BoCMetric, zoo
from torch_boc.report.format import number, percent

ROOT = Path(__file__).parents[2]
HEADLINE = json.loads(PAGE.read_text(encoding="utf-8"))


def over_all(name, digits=1):
    values = sorted(model[name] for model in HEADLINE.values())
    return "–".join(number(x, digits, 100) for x in (values[0], values[-1]))


def test_pages_quote_the_file():
    resnet, delays = HEADLINE["resnet20-cifar10"], sorted(model["delay"] for model in HEADLINE.values())
    others = sorted(model["detection_rate"] for name, model in HEADLINE.items() if name != "minilm-clinc150")
    pages = "README.md", *(f"examples/guide/{x}.md" for x in ("decide", "index", "report"))
    readme, decide, index, report = (" ".join((ROOT / x).read_text(encoding="utf-8").split()) for x in pages)
    minilm, rates = HEADLINE["minilm-clinc150"], [percent(HEADLINE[name]["detection_rate"])[:-2] for name in NAMES]
    quoted = {
        f"ECE {percent(resnet['ece'])}, {percent(resnet['calibrated_ece'])} after calibration": (readme,),
        f"at {over_all('coverage', 0)} % coverage": (readme, decide),
        f"measured {over_all('fpr')} %": (readme,),
        f"detects {over_all('detection_rate')} % of OOD samples": (readme,),
        f"{100 * others[0]:.0f}–{100 * others[-1]:.0f} % on the three other models": (readme,),
        f"{delays[0]:.0f}–{delays[-1]:.0f} samples": (readme, decide),
        f"best: {', '.join(rates[:-1])} and {rates[-1]} % of the OOD sets": (decide,),
        f"flags {percent(minilm['fpr'])} of the in-scope requests": (index,),
        f"and {percent(minilm['detection_rate'])} of the out-of-scope requests": (index,),
        f"after 300 in-scope requests raises an alarm {minilm['delay']:.0f} requests later (median)": (index,),
        f'such as "Overconfident: ECE {percent(resnet["ece"])}; vector scaling corrects it"': (report,),
    }
    missing = [text for text, pages in quoted.items() for page in pages if text not in page]
    assert missing == []


def test_the_readme_quotes_the_metric():
    metric, (test, _) = BoCMetric(), zoo.load("resnet20-cifar10").test_and_splits()
    metric.update(test.logits, test.target)
    values = {key: metric.compute()[key] for key in ("accuracy", "ece", "nll", "gap")}
    quoted = ", ".join(f"'{key}': {value:.3f}" for key, value in values.items())
    assert f"# {{{quoted}, ...}}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_guide_and_the_readme_quote_the_counts():
    with (PAGE.parent / "coverage.csv").open(encoding="utf-8", newline="") as file:
        counts = {(row["study"], row["case"], row["what"]): row["share"] for row in csv.DictReader(file)}

    def share(*key):
        return f"{100 * float(counts[key]):.0f}"

    text = " ".join((ROOT / "examples/guide/decide.md").read_text(encoding="utf-8").split())
    fitted = [("fitted on the same", f"{name}, {{}} fitted on the same samples", "error above 5%") for name in NAMES]
    vit, minilm = fitted[-1], fitted[0]
    broken = [share(x[0], x[1].format("matrix scaling"), x[2]) for x in (vit, minilm)]
    assert f"broke the guarantee in {' and '.join(broken)} % of the draws" in text
    harmless = [share(x[0], x[1].format(y), x[2]) for x in (vit, minilm) for y in ("vector scaling", "temperature")]
    assert f"and one temperature in at most {max(harmless)} %" in text
    alarm, warned = (share("bursts", "20 equal samples after 200", what) for what in ("alarm", "warned"))
    assert f"{alarm} % of streams had a false alarm and {warned} % a warning" in text
    plain = "sets", "resnet20-cifar10, plain, all classes"
    assert f"{share(*plain, 'empty')} % of the in-distribution sets were empty" in text
    assert f"correct for {share(*plain, 'top class correct if empty')} % of these" in text
    labels = float(counts["audit", "error 5 %: median number of labels", "alarm"])
    assert f"raises an alarm after {labels:.0f} labels" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_figures_show_the_file():
    """The names on the lines, the dots of acceptance and of the flags."""
    (_, (accept,)), (_, (flags,)), (_, streams) = panels(1), panels(1), panels(4)
    draw_acceptance(accept)
    draw_flags(flags)
    draw_streams(streams)
    texts = [text.get_text() for text in accept.texts]
    for i, (name, title) in enumerate(NAMES.items()):
        model = HEADLINE[name]
        assert f"{title.split(',')[0]}: {percent(model['coverage'])}" in texts
        dot = accept.lines[2 * i + 1]
        assert [dot.get_xdata()[0], dot.get_ydata()[0]] == pytest.approx([model["coverage"], model["risk"]], abs=6e-5)
        shares = [float(line.get_xdata()[0]) for line in flags.lines[3 * i + 1 : 3 * i + 3]]
        assert shares == pytest.approx([model["fpr"], model["detection_rate"]], abs=6e-5)
        assert streams[i].get_title() == f"{title}: median delay {model['delay']:.0f} samples"


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names())
def test_the_file_is_that_of_the_code(name):
    """If this fails, run `python -m benchmarks.headline`."""
    assert headline(zoo.load(name)) == pytest.approx(HEADLINE[name], abs=1.01e-4)
