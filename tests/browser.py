"""A real browser for tests of pages: the Chromium that is installed, driven by Playwright."""

import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]


@pytest.fixture(scope="module")
def browser():
    """Import this fixture into a test file. Its tests are skipped if there is no Chromium.

    It ends with the file: a process that a later test forks would hold the pipes of the driver, which would never end.
    """
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", *QUIET])
        yield running
        running.close()


class Watched:
    """A page of a file, with all that it says on the console, and all that it asks for besides itself."""

    def __init__(self, browser, path, *, width=1100, dark=False, script=True):
        view = {"width": width, "height": 800}
        scheme = "dark" if dark else "light"
        self.context = browser.new_context(viewport=view, color_scheme=scheme, java_script_enabled=script)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.resolve().as_uri())
        self.asked = [url for url in self.asked if url != path.resolve().as_uri()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()
