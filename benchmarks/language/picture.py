"""The picture of a tinted page, with Chromium: `python -m benchmarks.language.picture trace.html`."""

import argparse
from pathlib import Path

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1000, 960


def main() -> None:
    """Take the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="what `torch-boc trace` has written")
    parser.add_argument("--token", type=int, default=50, help="the generated token whose card is shown")
    parser.add_argument("--browser", help="the path of Chromium, if Playwright has none of its own")
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        shown.goto(args.page.resolve().as_uri())
        shown.locator(".answer .text > span").nth(args.token).hover()  # shows its card
        shown.screenshot(path=HERE / "tinted.png")
        browser.close()
    print("wrote tinted.png")


if __name__ == "__main__":
    main()
