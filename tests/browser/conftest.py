"""A real browser, headless, and pages in it.

`make browser-test` runs these tests. They need Chromium and its driver, and fail without them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from nats_conformance.reports import judged, write_reports
from nats_conformance.reports.site import write_site
from tests.unit.conformance import sample_runs

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
_LIMIT = 60
"""Seconds until a page that does not get there counts as hung; generous, as busy machines are slow."""


class Window:
    """Chromium's window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def resize(self, *, width: int = 1440, height: int = 900, is_dark: bool = False) -> None:
        """Take a size, and a preference for light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for something to be true, and answer with it."""
        return WebDriverWait(self.driver, _LIMIT, poll_frequency=0.02).until(lambda _: condition())

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The text content, with what is only there for the eye."""
        return str(self.one(selector).get_property("textContent"))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def requests(self) -> list[str]:
        """Everything that the browser asked for since the last call."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """What is in the console since the last call."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]


class Browser(Window):
    """A window with a report page open."""

    def __init__(self, driver: webdriver.Chrome, page: Path) -> None:
        super().__init__(driver)
        self.page = page

    def show(self, address: str = "", **size: Any) -> None:
        """Reload the page, at an address after ``#``."""
        self.resize(**size)
        self.driver.get("about:blank")
        self.driver.get(self.page.as_uri() + (f"#{address}" if address else ""))
        self.until(lambda: self.all(".row"))

    def shown_cases(self) -> list[str]:
        """Ids of the rows that filters left, in their order."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll('.row')].filter(row => row.offsetParent)"
            ".map(row => row.querySelector('small').firstChild.textContent)"
        )
        return found

    def cell(self, case: str, subject: str) -> WebElement:
        found: WebElement = self.run(
            "return [...document.querySelectorAll('.row')]"
            ".find(row => row.querySelector('small').firstChild.textContent === arguments[0])"
            ".querySelector(`[aria-label^='${arguments[1]}:']`)",
            case,
            subject,
        )
        return found

    def focused(self) -> str:
        return str(self.run("return document.activeElement.getAttribute('aria-label') || document.activeElement.id"))


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.fail(
            "the page is tested in a real browser, and there is none: install Chromium and its driver "
            "(Debian and Ubuntu: apt-get install chromium chromium-driver)",
            pytrace=False,
        )
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(chromedriver))
    yield found
    found.quit()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages by name: a run with every outcome, one that is not complete, a large one, and a site's first page."""
    folder = tmp_path_factory.mktemp("reports")
    large, large_cases = sample_runs.large_run(500)
    runs = {
        "mixed": judged(sample_runs.mixed_run(), sample_runs.CASES),
        "partial": judged(sample_runs.run(missing={"2.13": "no such version"}), sample_runs.CASES),
        "large": judged(large, large_cases),
    }
    docs = folder / "docs" / "known-divergences.md"
    docs.parent.mkdir()
    docs.touch()
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        found = {name: write_reports(run, folder / name)[-1] for name, run in runs.items()}
    sample_runs.add(folder / "site", sample_runs.mixed_run())
    return found | {"site": write_site(folder / "site", sample_runs.CASES)[0]}


@pytest.fixture
def browser(driver: webdriver.Chrome, pages: dict[str, Path]) -> Iterator[Browser]:
    """The mixed run's page. Afterwards: nothing in the console, no request that left the page."""
    found = Browser(driver, pages["mixed"])
    found.show()
    found.complaints()
    found.requests()
    yield found
    assert found.complaints() == []
    assert [url for url in found.requests() if not url.startswith(("file:", "data:", "about:"))] == []
