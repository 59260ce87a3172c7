"""Every configuration that the documentation shows loads, and every JSON that it shows is JSON."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.marked_yaml import compose
from nats_bridge.settings import load
from nats_bridge.settings.models import Settings
from nats_conformance.catalogue.reading import read_text
from tests.unit.docs.pages import ROOT, Piece, blocks

RULES = """rules:
  - {name: any, kind: republish, stream: ORDERS, republish: {src: "orders.>", dest: "monitor.orders.>"}}
"""
KEYS = set(Settings.model_fields)
YAML = list(blocks("yaml"))
JSON_BEGINS = re.compile(r"^(?:[→←] )?(?=\{\")", re.MULTILINE)


def _value(block: Piece) -> Any:
    return compose(block.text).value


def _is_configuration(value: Any) -> bool:
    return (isinstance(value, dict) and bool(KEYS & value.keys())) or _is_rules(value)


def _is_rules(value: Any) -> bool:
    return isinstance(value, list) and all("kind" in rule for rule in value)


CONFIGURATIONS = [block for block in YAML if _is_configuration(_value(block))]
OTHERS = [block for block in YAML if not _is_configuration(_value(block))]


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=lambda block: block.place)
def test_a_configuration_loads(block: Piece, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = block.text
    if _is_rules(_value(block)):
        text = "rules:\n" + text
    if "rules" not in compose(text).value:
        text += RULES
    named = set(re.findall(r"\b(?:from|to|leaf|connection): (\w+)", text)) - {"default"}
    if "connections" not in compose(text).value and named:
        # A fragment: it names connections that stand elsewhere.
        others = "".join(f'  {name}: {{servers: ["nats://127.0.0.1:4222"]}}\n' for name in sorted(named))
        text += 'connections:\n  default: {servers: ["nats://127.0.0.1:4222"]}\n' + others
    path = tmp_path / "bridge.yaml"
    path.write_text(text, "utf-8")
    monkeypatch.setattr("os.environ", {})
    load(path, unreadable=[])


@pytest.mark.parametrize("block", OTHERS, ids=lambda block: block.place)
def test_other_yaml_is_a_case_of_the_suite_or_of_kubernetes(block: Piece) -> None:
    value = _value(block)
    where = str(block.page.relative_to(ROOT))
    if where == "docs/kubernetes.md":
        return  # tests/k8s checks these
    assert where == "docs/conformance-cases.md", f"{block.place}: no configuration, and of no other known kind"
    if isinstance(value, dict) and "cases" in value:
        assert read_text(block.text, "shown.yaml")


def _jsons() -> Iterator[tuple[Piece, str]]:
    for block in blocks():
        if block.language in {"yaml", "python"}:
            continue
        for begin in JSON_BEGINS.finditer(block.text):
            yield block, block.text[begin.end() :]


def test_json_is_json() -> None:
    shown = list(_jsons())
    assert len(shown) > 10
    wrong = []
    for block, text in shown:
        try:
            # What is left out of an object is shown as its last member: `…`.
            json.JSONDecoder().raw_decode(re.sub(r",\s*…(?=\s*[}\]])", "", text))
        except ValueError as error:
            wrong.append(f"{block.place}: {text[:30]!r}: {error}")
    assert not wrong, "\n".join(wrong)


def test_there_is_something_to_check() -> None:
    assert len(CONFIGURATIONS) > 30
