"""The report page, as people use it."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser
from tests.unit.conformance.sample_runs import BRIDGE, BYTES, CASES, CRASH, CYCLE, DELETED, EDIT, ORDER, PARTITION

ORDER_WRONG = f"case={ORDER.id}&subject=engine+2.11.17"
WIDTHS = (360, 380, 600, 800, 1024, 1280, 1600, 2000)


def press(browser: Browser, *keys: str) -> None:
    actions = ActionChains(browser.driver)
    for key in keys:
        actions.send_keys(key)
    actions.perform()


def click(browser: Browser, selector: str) -> None:
    browser.one(selector).click()


def marked(browser: Browser, side: str) -> list[str]:
    """The highlighted parts of one side of what is compared."""
    return [str(each.get_property("textContent")) for each in browser.all(f".compared .field.wrong .side.{side} mark")]


def test_the_matrix_has_every_case_and_subject(browser: Browser) -> None:
    assert browser.shown_cases() == [case.id for case in CASES]
    assert len(browser.all(".row:first-of-type .cell, .heads .version")) >= 13
    assert browser.cell(ORDER.id, "native 2.9.10").get_attribute("aria-label") == "native 2.9.10: observed difference"
    assert browser.text("#result") == "✗6 failures"
    assert "7 cases · 13 subjects of test" in browser.text("#about")


def summary(browser: Browser, table: str, row: str) -> dict[str, str]:
    """A row of a table above the cases: what its cells say, by subject of test."""
    (found,) = [each for each in browser.all(f"{table} tr") if each.find_elements(By.LINK_TEXT, row)]
    texts = [str(each.get_attribute("aria-label")) for each in found.find_elements(By.CSS_SELECTOR, ".sum")]
    return dict(text.split(": ", 1) for text in texts)


def test_features_by_version_come_first(browser: Browser) -> None:
    assert summary(browser, "#features", "Configuration")["native 2.9.10"] == "1 of 2 differ"
    assert summary(browser, "#features", "Configuration")["engine 2.9.10"] == "1 of 2 fail"
    partition = summary(browser, "#features", "Partition")
    assert (partition["native 2.14.9"], partition["native 2.15.1"]) == ("1 of 2 fail", "2 supported")
    assert summary(browser, "#features", "Ingress transforms")["native 2.9.10"] == "not supported"
    assert summary(browser, "#features", "Other cases")[BRIDGE.label] == "1 of 1 differ"
    whole = "4 of 6 differ, 1 not about this version"
    assert summary(browser, "#features", "All cases")["native 2.9.10"] == whole


def test_a_feature_and_each_of_its_cells_lead_to_the_cases(browser: Browser) -> None:
    click(browser, "#features [aria-label='engine 2.9.10: 1 of 2 fail']")
    browser.until(lambda: browser.shown_cases() == [CYCLE.id, EDIT.id])
    assert browser.run("return location.hash") == "#cases=adr28/validation,adr28/rules&outcome=fail,errored"
    assert browser.text("#shown") == "2 of 7 cases: adr28/validation, adr28/rules"
    browser.driver.back()
    browser.until(lambda: len(browser.shown_cases()) == 7)


def test_statements_have_their_cases(browser: Browser) -> None:
    click(browser, "#statements summary")
    statement = "Each RePublished Message will have the following message headers"
    assert summary(browser, "#statements", statement)["native 2.9.10"] == "1 of 1 differ"
    browser.driver.find_element(By.LINK_TEXT, statement).click()
    browser.until(lambda: browser.shown_cases() == [ORDER.id])


def test_what_changed_from_version_to_version(browser: Browser) -> None:
    click(browser, "#changes summary")
    assert [each.text for each in browser.all("#changes details > summary")] == [
        "2.14.9 → 2.15.1 0 cases differ",
        "2.12.15 → 2.14.9 0 cases differ",
        "2.11.17 → 2.12.15 2 cases differ",
        "2.10.27 → 2.11.17 0 cases differ",
        "2.9.10 → 2.10.27 2 cases differ",
    ]
    browser.all("#changes details > summary")[-1].click()
    assert browser.all("#changes details p")[-1].text == "New: Ingress transforms"
    browser.driver.find_element(By.LINK_TEXT, "Nats-Time-Stamp came with 2.10").click()
    browser.until(lambda: browser.text("#panel-title") == ORDER.title)


def test_a_case_has_an_address_that_does_not_name_a_version(browser: Browser) -> None:
    browser.show(f"case={ORDER.id}")
    assert browser.one(".tools a").get_property("href") == f"{browser.page.as_uri()}#case={ORDER.id}"
    assert "engine 2.11.17: fail" in browser.text(".verdict")


def test_a_site_lists_its_runs_and_every_link_of_it_leads_to_a_file(browser: Browser, pages: dict[str, Path]) -> None:
    browser.page = pages["site"]
    browser.show()
    click(browser, "#runs summary")
    assert "version 2026.11.21, licence Apache-2.0" in browser.text("#runs p")
    links = [Path(str(each.get_property("pathname"))) for each in browser.all("#runs a")]
    assert [link.name for link in links] == ["report.json", "index.html", "report.json", "history.jsonl"]
    assert all(link.is_file() for link in links)
    browser.all("#runs a")[1].click()
    browser.until(lambda: browser.text("#home") == "nats-conform: one run")
    click(browser, "#home a")
    browser.until(lambda: browser.all("#runs:not([hidden])"))


def test_filter_by_text(browser: Browser) -> None:
    browser.one("#text").send_keys("modulus 0")
    assert browser.shown_cases() == [CRASH.id]
    assert browser.text("#shown") == "1 of 7 cases"
    assert browser.run("return location.hash") == "#q=modulus+0"
    click(browser, "#clear")
    assert len(browser.shown_cases()) == 7
    assert browser.run("return location.hash") == ""


def test_text_is_looked_for_in_configurations_and_reasons_too(browser: Browser) -> None:
    browser.one("#text").send_keys("partition(10")
    assert browser.shown_cases() == [PARTITION.id]
    browser.one("#text").clear()
    browser.one("#text").send_keys("came with 2.10")
    assert browser.shown_cases() == [ORDER.id]


def test_nothing_found_is_said(browser: Browser) -> None:
    browser.one("#text").send_keys("no such text anywhere")
    assert browser.shown_cases() == []
    assert browser.one("#none").is_displayed()


def test_filter_by_outcome(browser: Browser) -> None:
    click(browser, "[data-outcome=errored]")
    assert browser.shown_cases() == [PARTITION.id]
    click(browser, "[data-outcome=divergence]")
    assert browser.shown_cases() == [PARTITION.id, DELETED.id]
    assert browser.one("[data-outcome=errored]").get_attribute("aria-pressed") == "true"
    click(browser, "[data-outcome=errored]")
    assert browser.shown_cases() == [DELETED.id]


def test_filter_by_level_document_and_difference(browser: Browser) -> None:
    browser.one("#level").send_keys("must")
    assert browser.shown_cases() == [ORDER.id, CYCLE.id]
    click(browser, "#differ")
    # One engine fails where all versions are expected to be the same: that is a difference as well.
    assert browser.shown_cases() == [ORDER.id, CYCLE.id]
    browser.one("#level").send_keys("all")
    browser.one("#document").send_keys("ADR-30")
    assert browser.shown_cases() == [PARTITION.id, CRASH.id]


def test_only_rows_in_which_versions_differ(browser: Browser) -> None:
    for kind in ("engine", "bridge"):
        click(browser, f"[data-kind={kind}]")
    click(browser, "#differ")
    assert CYCLE.id not in browser.shown_cases()
    assert ORDER.id in browser.shown_cases()
    assert len(browser.all(".heads .version")) == 6


def test_the_last_kind_of_columns_stays(browser: Browser) -> None:
    for kind in ("native", "engine", "bridge"):
        click(browser, f"[data-kind={kind}]")
    assert [each.text for each in browser.all(".heads .version")] == ["2.15.1\non 2.10.27"]


def test_a_cell_shows_what_was_sent_expected_and_received(browser: Browser) -> None:
    browser.cell(ORDER.id, "engine 2.11.17").click()
    assert browser.text("#panel-title") == ORDER.title
    assert "engine 2.11.17: fail" in browser.text(".verdict")
    sent = browser.text(".sent")
    assert '"republish": { "src": "in.>", "dest": "out.>" }' in sent
    # A tab, a space at the end of the line and the line's end are there to be seen.
    assert "X-Trace:\\tabc \\r\\n" in sent
    expected = browser.text(".compared .field.wrong .side.expected")
    received = browser.text(".compared .field.wrong .side.observed")
    assert "Nats-Time-Stamp: <time>\\r\\n" in expected
    assert "Nats-Time-Stamp: 2026-11-21T12:00:00.123456789Z\\r\\n" in received
    assert "Nats-Last-Sequence: 1\\r\\n\n\\r\\n" in expected
    assert "Nats-Last-Sequence:  0\\r\\n\n\\r\\n" in received


def test_what_differs_is_highlighted_and_nothing_else(browser: Browser) -> None:
    browser.cell(ORDER.id, "engine 2.11.17").click()
    assert marked(browser, "expected") == ["1"]
    assert marked(browser, "observed") == [" 0"]
    assert browser.text(".compared details.right summary") == "Received 1 of 2: as expected ✓"


def test_a_message_that_did_not_come(browser: Browser) -> None:
    browser.cell(ORDER.id, "engine 2.14.9").click()
    assert "Received 2 of 2" in browser.text(".compared .item.wrong h4")
    assert "✗ did not come" in browser.text(".compared .item.wrong h4")


def test_a_refusal_that_was_expected(browser: Browser) -> None:
    browser.cell(CYCLE.id, "engine 2.9.10").click()
    assert "refused 500/10052" in browser.text(".compared .side.expected")
    assert "accepted" in browser.text(".compared .side.observed")


def test_bytes_that_are_no_text(browser: Browser) -> None:
    browser.cell(BYTES.id, "native 2.10.27").click()
    compared = browser.text(".compared")
    assert "ä\\xff\\x00<b>&amp;\\x1b[31m" in compared
    assert "Schlüssel: ä\\r\\n" in compared
    assert browser.all(".panel b:not(.verdict b)") == []


def test_a_known_difference_is_shown_next_to_the_others(browser: Browser) -> None:
    browser.cell(ORDER.id, "native 2.9.10").click()
    assert "Nats-Time-Stamp came with 2.10" in browser.text(".verdict")
    assert browser.all(".compared .wrong") == []
    found = [str(each.get_property("textContent")) for each in browser.all(".usual .side.expected mark")]
    assert "Nats-Time-Stamp: <time>\\r\\n\n" in found
    assert "≠ differs" in browser.text(".usual .item.wrong h4")
    # Nothing is there to be marked on the other side, so the place is.
    assert browser.all(".usual .side.observed mark.gap")


def test_a_known_divergence_links_to_its_explanation(browser: Browser) -> None:
    browser.cell(DELETED.id, BRIDGE.label).click()
    link = browser.one(".verdict a")
    assert link.text == "kd/order/two-rules"
    assert str(link.get_attribute("href")).endswith("/docs/known-divergences.md")


def test_the_clause_is_linked(browser: Browser) -> None:
    browser.cell(ORDER.id, "native 2.9.10").click()
    assert browser.one(".facts a").get_attribute("href") == (
        "https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-28.md#republish-headers"
    )


COMMAND = f"nats-conform run --versions 2.11.17 --subjects engine --select {ORDER.id}"


def test_the_command_is_copied(browser: Browser) -> None:
    browser.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    browser.show(ORDER_WRONG)
    assert browser.one(".again textarea").get_property("value") == COMMAND
    click(browser, ".copy")
    browser.until(lambda: browser.text("#said") == "Copied")
    # What is in the clipboard comes out where it is pasted.
    click(browser, "#text")
    ActionChains(browser.driver).key_down(Keys.CONTROL).send_keys("v").key_up(Keys.CONTROL).perform()
    browser.until(lambda: browser.one("#text").get_property("value") == COMMAND)


def test_the_command_is_copied_without_a_clipboard_interface(browser: Browser) -> None:
    browser.show(ORDER_WRONG)
    browser.run("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    click(browser, ".copy")
    browser.until(lambda: browser.text("#said") != "")
    field = browser.one(".again textarea")
    chosen = browser.run("const it = arguments[0]; return it.value.slice(it.selectionStart, it.selectionEnd)", field)
    assert chosen == COMMAND


def test_a_deep_link_opens_its_cell(browser: Browser) -> None:
    browser.show(ORDER_WRONG)
    assert browser.text("#panel-title") == ORDER.title
    assert "engine 2.11.17: fail" in browser.text(".verdict")
    assert browser.cell(ORDER.id, "engine 2.11.17").get_attribute("aria-selected") == "true"


def test_a_deep_link_without_a_subject_opens_the_cell_that_shows_most(browser: Browser) -> None:
    browser.show(f"case={CYCLE.id}")
    assert "engine 2.9.10: fail" in browser.text(".verdict")


def test_filters_are_part_of_the_address(browser: Browser) -> None:
    browser.show("outcome=errored,divergence&doc=ADR-30")
    assert browser.shown_cases() == [PARTITION.id]


def test_a_link_to_a_case_that_is_not_there_shows_the_matrix(browser: Browser) -> None:
    browser.show("case=adr28/no/such/1")
    assert not browser.one("#panel").is_displayed()
    assert len(browser.shown_cases()) == 7


def test_opening_is_one_step_back(browser: Browser) -> None:
    browser.cell(ORDER.id, "native 2.9.10").click()
    assert browser.one("#panel").is_displayed()
    browser.driver.back()
    browser.until(lambda: not browser.one("#panel").is_displayed())


def test_arrows_enter_and_escape(browser: Browser) -> None:
    browser.run("arguments[0].focus()", browser.cell(ORDER.id, "native 2.9.10"))
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert browser.focused() == "native 2.10.27: pass"
    press(browser, Keys.END)
    assert browser.focused() == f"{BRIDGE.label}: pass"
    press(browser, Keys.HOME, Keys.ENTER)
    assert browser.text("#panel-title") == CYCLE.title
    assert browser.focused() == "panel-title"
    press(browser, Keys.ESCAPE)
    assert not browser.one("#panel").is_displayed()
    assert browser.focused() == "native 2.9.10: pass"


def test_the_open_view_follows_the_arrows(browser: Browser) -> None:
    browser.cell(ORDER.id, "engine 2.10.27").click()
    press(browser, Keys.ARROW_RIGHT)
    assert "engine 2.11.17: fail" in browser.text(".verdict")
    press(browser, Keys.ARROW_DOWN)
    assert browser.text("#panel-title") == CYCLE.title


def test_one_cell_of_the_matrix_is_in_the_order_of_tabs(browser: Browser) -> None:
    assert len(browser.all(".cell[tabindex='0']")) == 1


def test_slash_goes_to_the_filter(browser: Browser) -> None:
    press(browser, "/")
    assert browser.focused() == "text"
    assert browser.one("#text").get_property("value") == ""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("address", ["", ORDER_WRONG, f"case={BYTES.id}&subject=engine+2.12.15"])
def test_no_width_makes_the_page_scroll_sideways(browser: Browser, width: int, address: str) -> None:
    browser.show(address, width=width)
    assert browser.run("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    if address:
        assert browser.run("const it = document.getElementById('panel'); return it.scrollWidth <= it.clientWidth")


def test_a_narrow_page_labels_its_cells(browser: Browser) -> None:
    browser.show(width=380)
    label = browser.run(
        "return getComputedStyle(arguments[0], '::before').content", browser.cell(ORDER.id, "native 2.9.10")
    )
    assert label == '"2.9.10"'
    assert not browser.one(".heads").is_displayed()


def test_a_narrow_page_opens_the_view_above_everything(browser: Browser) -> None:
    browser.show(width=380)
    browser.cell(ORDER.id, "engine 2.11.17").click()
    assert browser.run(
        "const box = arguments[0].getBoundingClientRect(); return [box.left, box.width]", browser.one("#panel")
    ) == [0, 380]
    click(browser, ".close")
    assert not browser.one("#panel").is_displayed()


_CONTRASTS = """
const light = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((each) => {
    const part = each / 255;
    return part <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
  });
  return .2126 * r + .7152 * g + .0722 * b;
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/, 0\\)$/.test(colour)) return colour;
  }
};
return arguments[0].flatMap((selector) => [...document.querySelectorAll(selector)].slice(0, 3).map((element) => {
  const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((x, y) => y - x);
  return [selector, (a + .05) / (b + .05)];
}));
"""


@pytest.mark.parametrize("is_dark", [False, True])
def test_texts_can_be_read_in_light_and_dark(browser: Browser, is_dark: bool) -> None:
    browser.show(ORDER_WRONG, is_dark=is_dark)
    selectors = [".case b", ".case small", ".about", ".facts", ".verdict p", ".side > small", ".bytes", ".bytes .odd"]
    selectors += [f".sign.{each}" for each in ("pass", "difference", "divergence", "skipped", "errored", "fail")]
    found = browser.run(_CONTRASTS, selectors)
    assert {selector for selector, _ in found} == set(selectors)
    assert [each for each in found if each[1] < 4.5] == []


def test_a_partial_run_says_so_first(browser: Browser, pages: dict[str, Path]) -> None:
    browser.page = pages["partial"]
    browser.show()
    assert "This report is partial" in browser.text("#objections [role=alert]")
    assert "2.13 is missing: no such version" in browser.text("#objections")
    assert browser.text("#result") == "!Not complete"


def test_a_large_run_is_there_at_once_and_filtered(browser: Browser, pages: dict[str, Path]) -> None:
    browser.page = pages["large"]
    browser.show()
    assert len(browser.all(".row")) == 500
    assert len(browser.all(".cell")) == 6000
    browser.one("#text").send_keys("variation 499")
    assert len(browser.shown_cases()) == 1
