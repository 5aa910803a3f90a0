"""The headline numbers of the bundled models: `python -m benchmarks.headline`, to results/headline.json.

They are those of `torch-boc demo`, that is of `evaluate` with its defaults. README and guide quote them, and a test
compares.
"""

import json
import math
import warnings
from typing import Any

from benchmarks.harness import RESULTS, write_page
from torch_boc import zoo
from torch_boc.calibration import LeakWarning
from torch_boc.evaluation import evaluate
from torch_boc.kernels import use
from torch_boc.report.calibration import calibration_advice
from torch_boc.report.review import flagged

PAGE = RESULTS / "headline.json"


def headline(entry: zoo.Entry) -> dict[str, float | None]:
    """The main numbers of a model, as shares: calibration, acceptance at 1 % error, detection at 5 % FPR, and delay."""
    test, splits = entry.test_and_splits()
    with use("torch"), warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)  # training samples are a split on purpose
        results = evaluate(test, entry.ood, calibration=splits).results
    advice: Any = calibration_advice(results)
    rates, accepted = flagged(results).set_index("kind")["flagged"], results.acceptance.iloc[0]
    numbers = {"accuracy": results.settings["accuracy"], "ece": advice.plain["ece"]}
    numbers["calibrated_ece"] = math.nan if advice.best is None else advice.best["ece"]
    numbers |= {"coverage": accepted["accepted"], "risk": accepted["wrong"], "fpr": rates["id"]}
    numbers |= {"detection_rate": rates["ood"], "delay": results.delays["delay"].iloc[0]}
    return {name: None if math.isnan(value) else round(float(value), 4) for name, value in numbers.items()}


def main() -> None:
    """Write the file."""
    models = {name: headline(zoo.load(name)) for name in zoo.names()}
    write_page(PAGE, json.dumps(models, indent=1) + "\n")


if __name__ == "__main__":
    main()
