"""Which requests the listener answers, unknown paths, and commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.errors import ConfigError
from nats_bridge.http import connections
from nats_bridge.http.connections import AT_ONCE
from nats_bridge.settings import load
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene, document
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: Any, text: str) -> None:
        self.status, self.headers, self.text = status, headers, text


async def ask(bridge: Sidecar, method: str, path: str, **headers: str) -> Answer:
    assert bridge.http is not None
    host, port = bridge.http
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://{host}:{port}{path}", headers=given) as answer,
    ):
        return Answer(answer.status, answer.headers, await answer.text())


@pytest.fixture
async def rule(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> tuple[str, dict[str, Any]]:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("manners"))
    return url, here.rule()


def settings(rule: tuple[str, dict[str, Any]], **http: Any) -> Any:
    return settings_for(*rule, http={"listen": "127.0.0.1:0", **http})


async def test_what_is_not_there_and_what_is(rule: tuple[str, dict[str, Any]]) -> None:
    async with running(settings(rule)) as bridge:
        answer = await ask(bridge, "GET", "/nowhere")
        assert answer.status == 404
        listed = answer.text.splitlines()[1:]
        assert {"GET /", "GET /livez", "GET /readyz", "GET /startupz", "GET /status", "POST /-/drain"} <= set(listed)
        for line in listed:
            method, path = line.split()
            if method == "GET":
                assert (await ask(bridge, "GET", path)).status == 200, path


async def test_changes_are_post_only(rule: tuple[str, dict[str, Any]]) -> None:
    async with running(settings(rule)) as bridge:
        answer = await ask(bridge, "GET", "/-/drain")
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
        assert answer.text == "GET is not allowed on this path; use POST\n"
        answer = await ask(bridge, "POST", "/status")
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        assert not bridge.draining


async def test_every_answer_keeps_others_out(rule: tuple[str, dict[str, Any]]) -> None:
    async with running(settings(rule)) as bridge:
        for path in ("/", "/page.js", "/page.css", "/status", "/readyz", "/nowhere"):
            headers = (await ask(bridge, "GET", path)).headers
            assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; ")
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert headers["Cache-Control"] == "no-store"
            assert headers["Server"] == "nats-bridge"
            assert "Access-Control-Allow-Origin" not in headers
        assert (await ask(bridge, "GET", "/")).headers["Content-Type"] == "text/html; charset=utf-8"


async def test_names_of_others_are_not_answered(rule: tuple[str, dict[str, Any]]) -> None:
    async with running(settings(rule, hosts=["bridge.example.com"])) as bridge:
        for path in ("/", "/status", "/readyz"):
            answer = await ask(bridge, "GET", path, Host="rebound.example.org:8322")
            assert answer.status == 421
            assert answer.text.startswith("'rebound.example.org' is not a name of this listener")
            assert (await ask(bridge, "GET", path, Host="bridge.example.com")).status == 200
            assert (await ask(bridge, "GET", path, Host="nats-bridge.monitoring.svc:8322")).status == 200
        assert (await ask(bridge, "POST", "/-/drain", Host="rebound.example.org")).status == 421
        assert not bridge.draining


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}]
)
async def test_other_sites_pages_cannot_change_anything(
    rule: tuple[str, dict[str, Any]], headers: dict[str, str]
) -> None:
    async with running(settings(rule)) as bridge:
        answer = await ask(bridge, "POST", "/-/drain", **headers)
        assert answer.status == 403
        assert answer.text.startswith("the request comes from ")
        assert not bridge.draining


async def test_changes_can_be_turned_off(rule: tuple[str, dict[str, Any]]) -> None:
    async with running(settings(rule, changes_from="nowhere")) as bridge:
        answer = await ask(bridge, "POST", "/-/drain")
        assert (answer.status, "nothing can be changed over HTTP" in answer.text) == (403, True)
        assert not bridge.draining


async def test_a_fault_is_in_the_log_and_not_in_the_answer(
    rule: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(settings(rule)) as bridge:
        monkeypatch.setattr(bridge.supervisors[0], "counters", lambda: {}["a fault"])
        with structlog.testing.capture_logs() as lines:
            answer = await ask(bridge, "GET", "/status")
        assert (answer.status, answer.text) == (500, "internal error; see the log\n")
        assert [(line["event"], line["path"], line["reason"]) for line in lines] == [
            ("http.failed", "/status", "'a fault'")
        ]
        assert (await ask(bridge, "GET", "/livez")).status == 200


async def test_reloading_says_what_happened(rule: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, first = rule
    file = tmp_path / "bridge.yaml"

    def write(*rules: dict[str, Any]) -> None:
        # Or the watch may take the file before it is asked to be taken.
        more = {"http": {"listen": "127.0.0.1:0"}, "reload": {"watch": False}}
        file.write_text(json.dumps(document(url, *rules, **more)), "utf-8")

    async def last() -> Any:
        return json.loads((await ask(bridge, "GET", "/status")).text)["config"]["last_reload"]

    write(first)
    bridge = Sidecar(load(file), file)
    await bridge.start()
    try:
        assert await last() is None
        answer = await ask(bridge, "POST", "/-/reload")
        assert (answer.status, json.loads(answer.text)["result"]) == (200, "unchanged")
        write(first, {**first, "name": "second"})
        answer = await ask(bridge, "POST", "/-/reload")
        reported = json.loads(answer.text)
        assert (answer.status, reported["result"], reported["changed"]) == (200, "applied", ["second"])
        assert await last() == reported
        file.write_text("rules: nonsense", "utf-8")
        answer = await ask(bridge, "POST", "/-/reload")
        reported = json.loads(answer.text)
        assert (answer.status, reported["result"]) == (409, "refused")
        assert reported["reason"].startswith(f"{file}:1:8: ")
        assert await last() == reported
        state = json.loads((await ask(bridge, "GET", "/status")).text)
        assert [each["name"] for each in state["rules"]] == ["rule", "second"]
        assert state["config"]["path"] == str(file)
        assert (await ask(bridge, "POST", "/-/reload", Origin="https://evil.example")).status == 403
    finally:
        await bridge.stop()


async def test_an_address_that_cannot_be_used(rule: tuple[str, dict[str, Any]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"^http.listen: cannot listen on {at} \(address already in use\): "):
            await Sidecar(settings_for(rule[0], rule[1], http={"listen": at})).start()


async def test_draining(rule: tuple[str, dict[str, Any]]) -> None:
    async with running(settings(rule)) as bridge:
        answer = await ask(bridge, "POST", "/-/drain")
        assert (answer.status, answer.text) == (202, '{"result": "draining"}')
        async with asyncio.timeout(LIMIT):
            await bridge.finished.wait()
        assert (await ask(bridge, "GET", "/readyz")).status == 503
        why = json.loads((await ask(bridge, "GET", "/status")).text)["why_not_ready"]
        assert why == ["draining: it finishes messages in flight and stops"]
        assert (await ask(bridge, "GET", "/livez")).status == 200


async def test_half_requests_take_no_other_connections_place(rule: tuple[str, dict[str, Any]]) -> None:
    async with running(settings(rule)) as bridge:
        assert bridge.http is not None
        first, *others = [await asyncio.open_connection(*bridge.http) for _ in range(2 * AT_ONCE)]
        for _, writer in (first, *others):
            writer.write(b"GET /livez HTTP/1.1\r\nHost: local")
        assert (await ask(bridge, "GET", "/livez")).status == 200
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(ConnectionError):
                assert await first[0].read() == b"", "it made room for the next ones"
        for _, writer in (first, *others):
            writer.close()


async def test_a_request_that_does_not_arrive_is_ended(
    rule: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HEAD", 0.05)
    async with running(settings(rule)) as bridge:
        assert bridge.http is not None
        reader, writer = await asyncio.open_connection(*bridge.http)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: local")
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
