"""The README's picture of a report, light and dark: `python -m benchmarks.recipes.screenshot` (needs Chromium).

Writes results/report.png and results/report_dark.png from the report on the bundled ResNet-20.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import RESULTS
from torch_boc import zoo
from torch_boc.evaluation import evaluate

SIZE = {"width": 1060, "height": 600}
NAMES = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Make the report, and photograph its first screen."""
    from playwright.sync_api import sync_playwright

    entry = zoo.load("resnet20-cifar10")
    test, splits = entry.test_and_splits()
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        evaluate(test, entry.ood, calibration=splits, title="ResNet-20, CIFAR-10").save(folder)
        browser = driver.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, NAMES)), None), args=["--no-sandbox"]
        )
        for scheme, ending in (("light", ""), ("dark", "_dark")):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            page.goto((Path(folder) / "report.html").as_uri())
            page.screenshot(path=RESULTS / f"report{ending}.png")
        browser.close()


if __name__ == "__main__":
    main()
