"""Which names the listener answers to, and whose requests may change something."""

import pytest

from nats_bridge.http.callers import foreign_host, foreign_site
from nats_bridge.loopback import is_loopback


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8322", "127.0.0.1", "[::1]:8322", "[::1]", "10.1.2.3:8322", "localhost:8322", "LOCALHOST", "bridge",
        "nats-bridge:8322", "nats-bridge.monitoring.svc:8322", "nats-bridge.monitoring.svc.cluster.local.:8322",
        "box.localhost", "printer.local", "a.internal:80",
    ],
)  # fmt: skip
def test_names_that_cannot_be_owned_outside(host: str) -> None:
    assert foreign_host(host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8322",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "svc.evil",
        "a.svc.com",
    ],
)
def test_names_that_a_stranger_could_point_at_the_listener(host: str) -> None:
    assert "http.hosts" in str(foreign_host(host))


def test_names_that_are_listed() -> None:
    assert foreign_host("Bridge.Example.com:443", ["bridge.example.com"]) is None
    assert foreign_host("bridge.example.org", ["bridge.example.com"]) is not None
    assert foreign_host("") == "the request names no host"
    assert foreign_host(":8322") == "the request names no host"


@pytest.mark.parametrize(
    ("headers", "good"),
    [
        ({}, True),
        ({"Origin": "http://127.0.0.1:8322"}, True),
        ({"Origin": "https://127.0.0.1:8322", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "http://127.0.0.1:9999"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
    ],
)
def test_requests_for_another_sites_page(headers: dict[str, str], good: bool) -> None:
    assert (foreign_site({"Host": "127.0.0.1:8322", **headers}) is None) is good


@pytest.mark.parametrize(
    ("peer", "here"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False), ("fe80::1", False), (None, False), ("unix", False),
    ],
)  # fmt: skip
def test_callers_on_this_machine(peer: str | None, here: bool) -> None:
    assert is_loopback(peer) is here
