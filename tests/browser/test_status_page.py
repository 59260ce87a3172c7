"""The sidecar's status page, as people use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from nats_bridge.client.tasks import end_tasks
from nats_conformance.native_servers import NativeServer
from tests import status_documents as samples
from tests.browser.conftest import Window
from tests.live.raw_messages import RawPeer
from tests.live.sidecar_process import Scene, sidecar_processes
from tests.status_server import StatusServer, status_server

LIMIT = 60
"""Seconds until something counts as hung."""

WIDTHS = (320, 390, 600, 800, 1024, 1280, 2000)


class StatusPage(Window):
    """A window with the page of a sidecar whose state a test chooses."""

    def __init__(self, driver: webdriver.Chrome, server: StatusServer) -> None:
        super().__init__(driver)
        self.server = server

    def show(self, document: dict[str, Any], address: str = "", **size: Any) -> None:
        """Reload the page."""
        self.server.document = document
        self.resize(**size)
        self.driver.get("about:blank")
        self.driver.get(f"{self.server.url}/{address}")
        self.until(lambda: self.one("#main").get_attribute("aria-busy") == "false")

    def names(self) -> list[str]:
        """The rules that are shown, in their order."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll('.rule')].filter(rule => !rule.hidden)"
            ".map(rule => rule.querySelector('b').textContent)"
        )
        return found

    def rule(self, name: str) -> Any:
        return self.one(f".rule[data-key='{name}']")

    def part(self, name: str, selector: str) -> str:
        return str(self.rule(name).find_element(By.CSS_SELECTOR, selector).get_property("textContent"))

    def open(self, name: str) -> None:
        self.rule(name).find_element(By.CSS_SELECTOR, ".line").click()

    def facts(self, name: str) -> dict[str, str]:
        reported: dict[str, str] = self.run(
            "const names = [...arguments[0].querySelectorAll('.facts dt')];"
            "return Object.fromEntries(names.map(name => [name.textContent, name.nextSibling.textContent]))",
            self.rule(name),
        )
        return reported


@pytest.fixture
def server() -> Iterator[StatusServer]:
    with status_server(samples.trouble()) as running:
        yield running


@pytest.fixture
def page(driver: webdriver.Chrome, server: StatusServer) -> Iterator[StatusPage]:
    """The page with one of everything. Afterwards: nothing in the console, no request that left the sidecar."""
    found = StatusPage(driver, server)
    found.show(samples.trouble())
    found.complaints()
    found.requests()
    yield found
    # Whether the sidecar answers is the page's to say; the browser's own note of it cannot be kept away.
    assert [said for said in found.complaints() if "net::ERR_CONNECTION_REFUSED" not in said] == []
    assert [url for url in found.requests() if not url.startswith((server.url, "data:", "about:"))] == []
    found.driver.get("about:blank")


def test_rules_and_what_is_wrong_with_them(page: StatusPage) -> None:
    assert page.names() == ["monitor", "across", "settings", "copy", "events", "dead-letters"]
    assert page.text("#headline") == "2 of 6 rules are not running"
    assert page.text("#alarm-title") == "Not ready"
    assert [reason.text for reason in page.all("#reasons li")] == samples.trouble()["why_not_ready"]
    assert page.part("monitor", ".who small") == "republish · ORDERS · leads"
    assert page.part("monitor", ".measure .value") == "910/s"
    assert page.part("settings", ".says").startswith("waits: stream 'KV_SETTINGS' does not exist")
    assert page.part("copy", ".says").startswith("the server refuses a publication")
    assert page.part("events", ".says") == "standby: another replica leads the rule"
    assert page.text("#total-ready") == "3 of 6"
    assert page.text("#total-standing") == "1 on standby"
    assert page.driver.title == "not ready · orders-bridge"


@pytest.mark.parametrize("is_dark", [False, True])
def test_a_native_copy_that_is_stalled(page: StatusPage, is_dark: bool) -> None:
    page.show(samples.document(samples.rule("monitor"), samples.watching()), is_dark=is_dark)
    assert page.text("#headline") == "1 native copy is stalled"
    assert page.part("mirrors", ".sign") == "!"
    assert page.part("mirrors", ".who small") == "watch · 3 copies · 1 stalled"
    assert page.part("mirrors", ".says") == (
        "ORDERS_WEST ← ORDERS: stalled for 90 min at 908,798, 1,204 messages missing, the server reports lag 0:"
        " stream ORDERS answers, but its deliveries do not arrive"
    )
    values = "return [...arguments[0].querySelectorAll('.measure .value')].map(each => each.textContent)"
    assert page.run(values, page.rule("mirrors")) == ["–", "–", "1,207", "–"]
    page.open("mirrors")
    shown = page.run(
        "return [...arguments[0].querySelectorAll('.copies li')].map(copy => [copy.className,"
        " ...[...copy.children].filter(part => !part.hidden).map(part => part.textContent)])",
        page.rule("mirrors"),
    )
    assert shown[0] == [
        *("stalled", "✗", "ORDERS_WEST ← ORDERS"),
        "stalled for 90 min at 908,798, 1,204 messages missing, the server reports lag 0",
        "Likely: stream ORDERS answers, but its deliveries do not arrive",
        "Remedy: export and import deliver.> as a stream, and $JS.FC.> as a service; check permissions on the path",
        "Step down: asked of n2",
    ]
    assert shown[1:] == [
        ["behind", "…", "ARCHIVE ← ORDERS (orders.eu.>)", "behind at 910,002, 3 messages missing"],
        ["complete", "✓", "PAYMENTS_WEST ← PAYMENTS", "complete at 910,002"],
    ]
    assert page.run(_CONTRASTS) == []
    page.show(samples.document(samples.rule("monitor")), is_dark=is_dark)
    assert page.text("#headline") == "The rule is running"


def test_a_rule_that_is_far_behind_is_marked(page: StatusPage) -> None:
    marked = page.run("return [...document.querySelectorAll('.measure.care .value')].map(each => each.textContent)")
    assert marked == ["1.2M 90 min"]


def test_an_unknown_lag_is_not_zero(page: StatusPage) -> None:
    assert page.part("settings", ".measure:has(.spark.lag) .value") == "?"
    assert page.text("#total-lag") == "≥ 1.2M"
    held, known = samples.waiting("held"), samples.waiting("known")
    held["measures"] |= {"in_flight": 3}
    known["measures"] |= {"in_flight": 3, "lag_messages": 39}
    ingress = samples.rule("ingress", kind="subject_transform", reads_stream=False)
    ingress["measures"] |= {"lag_messages": None}
    page.show(samples.document(held, known, ingress))
    assert [page.part(name, ".measure:has(.spark.lag) .value") for name in ("held", "known", "ingress")] == [
        "≥ 3",
        "42",
        "–",
    ]
    assert page.text("#total-lag") == "≥ 45"
    page.show(samples.document(known, ingress))
    assert page.text("#total-lag") == "42"


def test_connections_and_configuration(page: StatusPage) -> None:
    reported = [each.text.splitlines() for each in page.all(".connection")]
    assert reported[0] == ["✓", "default: nats-server 2.15.3 at default.example:4222", "nats://default.example:4222"]
    assert reported[1][:2] == ["✗", "west: not connected"]
    assert "3 reconnects" in reported[1][2]
    assert "the connection was lost" in reported[1][2]
    assert "/etc/nats-bridge/config.yaml" in page.text("#config")
    assert "applied at " in page.text("#config")
    assert "(across)" in page.text("#config")


def test_a_server_that_this_release_was_not_compared_with(page: StatusPage) -> None:
    remark = "nats-server 2.16.0 is of a minor line that this release was not compared with"
    link = {**samples.connection(), "untested_server": remark}
    page.show(samples.document(samples.rule("one"), connections=[link]))
    assert page.text(".connection small") == f"nats://default.example:4222 · {remark}"


def test_a_refused_configuration_is_an_alarm_also_while_all_rules_run(page: StatusPage) -> None:
    refused = samples.document(samples.rule("one"))
    refused["config"]["last_reload"] = samples.reload("refused", reason="config.yaml:7:3: rules[0].name: is missing")
    page.show(refused)
    reported = "The changed configuration is refused, the previous one is in force"
    assert (page.text("#headline"), page.text("#alarm-title")) == (reported, reported)
    assert [reason.text for reason in page.all("#reasons li")] == ["reload: config.yaml:7:3: rules[0].name: is missing"]


def test_a_rule_opens_and_shows_everything(page: StatusPage) -> None:
    page.open("across")
    facts = page.facts("across")
    assert facts["State"] == "running"
    assert facts["Leader"] == "this replica"
    assert facts["From LEGACY"] == "position 12, lag messages 1,204,413, target is full"
    assert facts["In flight"] == "8,192"
    assert "received4,182,731" in page.part("across", ".counters")
    assert "lost" not in page.part("across", ".counters")  # zeros are left out
    assert next(each.text for each in page.all(".figure figcaption span") if each.text) == "In, messages per second"
    page.open("copy")
    errors = [each.text for each in page.all(".rule[data-key='copy'] .errors li")]
    assert "rule.failed" in errors[0]  # the newest first
    assert "copying.interrupted" in errors[1]


def test_charts_show_the_history_and_its_gaps(page: StatusPage) -> None:
    drawn = page.run(
        "return [...document.querySelectorAll('.rule[data-key=across] .spark .trace')]"
        ".map(path => path.getAttribute('d'))"
    )
    assert [each.count("L") for each in drawn] == [119, 119, 119, 99]
    assert drawn[3].startswith("M16.81 ")  # 20 of 120 samples have no latency
    page.open("across")
    figure = page.all(".rule[data-key='across'] .figure")[2]
    ActionChains(page.driver).move_to_element(figure.find_element(By.CSS_SELECTOR, ".frame")).perform()
    assert "ago: " in figure.text
    assert "10 min ago" in figure.text
    assert "highest 1.19M" in figure.text


def test_it_updates_itself_and_changes_only_what_changed(page: StatusPage, server: StatusServer) -> None:
    page.run("document.querySelectorAll('.rule, .connection, .trace').forEach(node => node.marked = true)")
    page.open("monitor")
    changed = samples.trouble()
    changed["rules"][0]["measures"]["rate_in"] = 7777.0
    changed["rules"] = [changed["rules"][0], samples.rule("newcomer"), *changed["rules"][2:]]
    server.document = changed
    page.until(lambda: page.names() == ["monitor", "newcomer", "settings", "copy", "events", "dead-letters"])
    assert page.part("monitor", ".measure .value") == "7,777/s"
    kept = page.run(
        "return [...document.querySelectorAll('.rule')].filter(node => node.marked).map(node => node.dataset.key)"
    )
    assert kept == ["monitor", "settings", "copy", "events", "dead-letters"]
    assert page.rule("monitor").find_element(By.CSS_SELECTOR, ".more").is_displayed()


def test_it_says_when_the_sidecar_is_gone_and_when_it_is_back(page: StatusPage, server: StatusServer) -> None:
    server.go_away()
    page.until(lambda: page.text("#headline") == "The sidecar does not answer")
    assert page.text("#alarm-title").startswith("No answer since ")
    assert "What is shown is from " in page.text("#alarm-title")
    assert page.driver.title == "gone · orders-bridge"
    assert page.text("#said") == "The sidecar does not answer"
    assert len(page.names()) == 6
    server.document = samples.document(samples.rule("monitor"))
    server.come_back()
    page.until(lambda: page.text("#headline") == "The rule is running")
    assert not page.one("#alarm").is_displayed()
    assert page.driver.title == "ready · orders-bridge"


def test_it_pauses_and_resumes(page: StatusPage, server: StatusServer) -> None:
    page.one("#pause").click()
    assert page.text("#updated").startswith("Paused at ")
    assert page.one("#pause").get_attribute("aria-pressed") == "true"
    server.document = samples.document(samples.rule("monitor"))
    # An answer may have been in flight; after it nothing is asked for any more.
    while server.asked(1, 3):
        pass
    page.one("#pause").click()
    page.until(lambda: page.names() == ["monitor"])


def test_draining(page: StatusPage) -> None:
    why = "draining: it finishes messages in flight and stops"
    rule = samples.rule("monitor", state="draining", condition="draining", ready=False)
    page.show(samples.document(rule, draining=True, why_not_ready=[why]))
    assert page.text("#headline") == "Draining: it finishes messages in flight"
    assert page.part("monitor", ".who small").endswith("finishes")
    assert page.text("#reasons") == why


def test_without_rules(page: StatusPage) -> None:
    page.show(samples.document())
    assert page.text("#headline") == "There are no rules"
    assert page.text("#none") == "There are no rules yet."
    assert not page.one("#totals").is_displayed()
    assert not page.one("#heads").is_displayed()


def test_a_hundred_rules_can_be_filtered(page: StatusPage) -> None:
    rules = [samples.rule(f"orders-{number:03}") for number in range(98)]
    page.show(samples.document(*rules, samples.lagging(), samples.waiting()))
    assert len(page.names()) == 100
    assert page.text("#headline") == "1 of 100 rules is not running"
    page.one("#text").send_keys("ORDERS-05")
    assert page.names() == [f"orders-05{digit}" for digit in range(10)]
    page.one("#text").clear()
    page.one("#text").send_keys("kv_")
    assert page.names() == ["settings"]
    page.one("#text").clear()
    page.one("#text").send_keys(" ", Keys.BACKSPACE)
    page.one("#trouble").click()
    assert page.names() == ["across", "settings"]
    page.one("#text").send_keys("nothing like that")
    assert page.text("#none") == "No rule is left by this filter."
    assert not page.one("#heads").is_displayed()


def test_words_are_never_markup(page: StatusPage) -> None:
    page.show(samples.document(samples.nasty(), name="<u>name</u>"))
    page.run("document.querySelector('.line').click()")
    assert page.text(".rule b") == "<b>bold</b>"
    assert page.text("#name") == "<u>name</u>"
    assert "<img src=x onerror=" in page.text(".says")
    assert "<i>event</i>" in page.text(".errors")
    assert page.run("return document.querySelectorAll('img, u, i, .says b, .errors b').length") == 0
    assert page.driver.title == "not ready · <u>name</u>"


def test_nothing_foreign_runs_or_loads(page: StatusPage) -> None:
    page.run(
        "const script = document.createElement('script'); script.textContent = 'window.foreign = 1';"
        "document.body.append(script);"
        "document.body.setAttribute('onclick', 'window.foreign = 2'); document.body.click();"
        "const image = new Image(); image.src = 'http://127.0.0.1:9/x.png'; document.body.append(image);"
    )
    asked = page.run("return fetch('http://127.0.0.1:9/').then(() => 'answered', error => String(error))")
    assert "Failed to fetch" in asked
    assert page.run("return window.foreign === undefined")
    said = page.complaints()
    assert len([line for line in said if "Content Security Policy" in line]) >= 4
    page.requests()


def test_other_pages_cannot_show_it_in_a_frame(page: StatusPage, server: StatusServer) -> None:
    page.driver.get(f"data:text/html,<iframe src='{server.url}/'></iframe>")
    page.driver.switch_to.frame(0)
    assert page.all("#main") == []
    page.driver.switch_to.default_content()


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_every_width(page: StatusPage, width: int, is_dark: bool) -> None:
    rules = [
        samples.rule("a-rule-with-a-name-that-is-as-long-as-names-of-rules-are-allowed-to-be", 9e8),
        samples.nasty(),
    ]
    document = samples.trouble()
    document["rules"] += rules
    document["connections"][0]["servers"] = ["nats://a-very-long-name-of-a-server.in.a.cluster.example.com:4222"] * 3
    page.show(document, "#open=across,copy", width=width, is_dark=is_dark)
    assert page.run("return document.documentElement.scrollWidth") <= width
    cut = page.run(
        "return [...document.querySelectorAll('h1, h2, b, small, .says, dd, dt, .errors span')]"
        ".filter(node => node.offsetParent && getComputedStyle(node).display !== 'inline')"
        ".filter(node => node.scrollWidth > node.clientWidth + 1)"
        ".map(node => node.textContent)"
    )
    assert cut == []


_CONTRASTS = """
const channels = (text) => {
  const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
  return { rgb: [r, g, b], a };
};
const luminance = (rgb) => rgb.map(v => v / 255)
  .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const { rgb, a } = channels(getComputedStyle(at).backgroundColor);
    if (a === 1) return rgb;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll('body *')]
  .filter(node => node.offsetParent && [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()))
  .map(node => {
    const both = [luminance(channels(getComputedStyle(node).color).rgb), luminance(behind(node))];
    const [light, dark] = both.sort((a, b) => b - a);
    return [(light + .05) / (dark + .05), node.tagName + '.' + node.className + ': ' + node.textContent.slice(0, 40)];
  })
  .filter(([contrast]) => contrast < 4.5);
"""


@pytest.mark.parametrize("is_dark", [False, True])
def test_all_text_can_be_read(page: StatusPage, is_dark: bool) -> None:
    page.show(samples.trouble(), "#open=across,copy,events", is_dark=is_dark)
    assert page.run(_CONTRASTS) == []


def test_with_the_keyboard_alone(page: StatusPage) -> None:
    def press(*keys: str) -> None:
        for key in keys:
            ActionChains(page.driver).send_keys(key).perform()

    press(Keys.TAB)
    assert page.run("return document.activeElement.className") == "skip"
    press(Keys.ENTER, Keys.TAB)
    label = page.run("return document.activeElement.getAttribute('aria-label')")
    assert label.startswith("monitor: running, 910 in and 882 out per second, 0 behind")
    press(Keys.ENTER)
    assert page.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    controlled = page.run("return document.getElementById(document.activeElement.getAttribute('aria-controls')).hidden")
    assert controlled is False
    press(Keys.ENTER)
    assert page.run("return document.activeElement.getAttribute('aria-expanded')") == "false"


def test_what_was_open_is_open_again(page: StatusPage) -> None:
    page.open("across")
    page.open("settings")
    page.driver.refresh()
    page.until(lambda: len(page.names()) == 6)
    opened = page.run(
        "return [...document.querySelectorAll('.line[aria-expanded=true]')]"
        ".map(line => line.querySelector('b').textContent)"
    )
    assert opened == ["across", "settings"]


async def test_the_page_of_a_real_sidecar(driver: webdriver.Chrome, tmp_path: Path) -> None:
    async with NativeServer("2.15.3") as server, sidecar_processes(tmp_path) as start:
        peer = await RawPeer.connect(server.url)
        here = await Scene.make(peer, "ORDERS")
        missing = {"name": "later", "stream": "LATER", "republish": {"src": "LATER.>", "dest": "later.>"}}
        sidecar = await start(server.url, here.rule(), missing, http={"listen": "127.0.0.1:0"})
        address = (await sidecar.said("sidecar.ready"))["http"]
        flow = asyncio.create_task(here.load.flow(here.bridged))

        def look() -> None:
            window = Window(driver)
            window.complaints()
            driver.get(f"http://{address}/")
            window.until(lambda: window.text("#headline") == "1 of 2 rules is not running")
            value = "return document.querySelector('.rule[data-key=rule] .measure .value').textContent"
            window.until(lambda: window.run(value) not in ("–", "0/s"))
            window.one(".rule[data-key='rule'] .line").click()
            drawn = "return document.querySelector('.chart .trace').getAttribute('d').length"
            window.until(lambda: window.run(drawn) > 12)
            assert window.text(".rule[data-key='later'] .says").startswith("waits: stream 'LATER' does not exist")
            assert "default: nats-server 2.15.3" in window.text("#connections")
            assert window.complaints() == []

        await asyncio.to_thread(look)
        await end_tasks(flow)
        assert await sidecar.stop() == 0
        window = Window(driver)
        await asyncio.to_thread(window.until, lambda: window.text("#headline") == "The sidecar does not answer")
        driver.get("about:blank")
        await peer.close()
