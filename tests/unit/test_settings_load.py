"""What a good configuration becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from nats_bridge.settings import Delivery, Settings, Start, load

RULE = {"name": "a", "kind": "republish", "stream": "S", "republish": {"dest": "x.>"}}


def _load(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "bridge.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, {})


def test_the_smallest_configuration_takes_all_defaults(tmp_path: Path) -> None:
    settings = _load(tmp_path, "rules: [{name: a, kind: republish, stream: S, republish: {src: a.b, dest: c}}]\n")
    (rule,) = settings.rules
    assert settings.name == "nats-bridge"
    assert settings.http.address == ("127.0.0.1", 8322)
    assert (settings.dialect, settings.dialect_of(rule)) == ("2.15", "2.15")
    assert (settings.log.format, settings.log.level) == ("auto", "info")
    assert settings.connections["default"].servers == ("nats://127.0.0.1:4222",)
    assert settings.connections["default"].connect_timeout == 5
    assert (rule.source_connection, rule.target_connection) == ("default", "default")
    assert (rule.start, rule.delivery) == (Start("new"), Delivery.AT_MOST_ONCE)
    assert (rule.durable, rule.allow_side_effects) == (True, False)
    assert rule.republish.native() == {"src": "a.b", "dest": "c", "headers_only": False}


def test_everything_can_be_said(tmp_path: Path) -> None:
    settings = _load(
        tmp_path,
        """
name: east-1
http: {listen: ""}
dialect: "2.10.27"
log: {format: json, level: debug}
connections:
  east: {servers: [h1, "tls://h2:4443"], inbox_prefix: _INBOX_b, connect_timeout: 1.5}
  west: {servers: "nats://h3,nats://h4:1"}
rules:
  - name: one
    kind: republish
    stream: ORDERS
    republish: {src: "a.*", dest: "b.$1", headers_only: true}
    from: east
    to: west
    start: {time: 2026-01-02T03:04:05.123456789+01:00}
    delivery: at_least_once
    allow_side_effects: true
    dialect: native
  - {name: two, kind: republish, stream: X, republish: {dest: "b.>"}, from: east, to: east,
     start: {sequence: 18446744073709551615}, durable: false}
""",
    )
    one, two = settings.rules
    assert settings.http.address is None
    assert settings.connections["west"].servers == ("nats://h3", "nats://h4:1")
    assert (one.source_connection, one.target_connection) == ("east", "west")
    assert one.start == Start("time", time="2026-01-02T03:04:05.123456789+01:00")
    assert one.delivery is Delivery.AT_LEAST_ONCE
    assert one.allow_side_effects
    assert settings.dialect_of(one) == "native"
    assert two.start == Start("sequence", sequence=2**64 - 1)
    assert two.republish.src == ">"
    assert settings.dialect_of(two) == "2.10.27"


def test_texts_stay_what_they_look_like(tmp_path: Path) -> None:
    # YAML 1.1 would read these as false, 8, a time and a base-60 number.
    settings = _load(
        tmp_path,
        "connections: {no: {servers: [h]}}\n"
        "rules: [{name: on, kind: republish, stream: 2026-01-01, republish: {src: a, dest: 12:30:00},"
        " from: no, to: no}]\n",
    )
    (rule,) = settings.rules
    assert (rule.name, rule.stream, rule.republish.dest) == ("on", "2026-01-01", "12:30:00")


def test_anchors_and_merged_mappings_work(tmp_path: Path) -> None:
    settings = _load(
        tmp_path,
        "rules:\n"
        "  - &base {name: a, kind: republish, stream: S, republish: {src: a, dest: b}, durable: false}\n"
        "  - {<<: *base, name: b}\n",
    )
    assert [(rule.name, rule.durable) for rule in settings.rules] == [("a", False), ("b", False)]


@pytest.mark.parametrize(
    ("listen", "address"),
    [(":8322", ("", 8322)), ("[::1]:80", ("::1", 80)), ("localhost:0", ("localhost", 0)), ("", None)],
)
def test_listen_addresses(listen: str, address: tuple[str, int] | None) -> None:
    assert Settings.model_validate({"http": {"listen": listen}}).http.address == address


@pytest.mark.parametrize("listen", ["1234", "a:b", "h:65536", "h :1", "::1:80", "h:-1", "h:१"])
def test_refused_listen_addresses(listen: str) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"http": {"listen": listen}})


def test_settings_are_frozen_values() -> None:
    one = Settings.model_validate({"rules": [RULE]})
    other = Settings.model_validate({"rules": [RULE]})
    assert one.rules[0] == other.rules[0]
    assert hash(one.rules[0]) == hash(other.rules[0])
    assert one.rules[0] != Settings.model_validate({"rules": [{**RULE, "start": "first"}]}).rules[0]
    with pytest.raises(ValidationError):
        one.rules[0].stream = "T"  # type: ignore[misc]  # that it is refused is what is tested
