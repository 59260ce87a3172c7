"""A server that this release was not compared with: the remark about it, wherever it is shown.

No server is newer than the newest one of the table, so these tests take the newest rows out of the table.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import click
import pytest
from structlog.testing import capture_logs

from nats_bridge.cli import main
from nats_bridge.cli.status.table import status_lines
from nats_bridge.settings import schema
from nats_bridge.settings.checks import transforming
from nats_transforms import tested_versions
from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.observing.metrics_endpoint import scrape
from tests.live.observing.test_health import FREE, status_of
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import Scene, document
from tests.live.sidecars import running, settings_for
from tests.live.until import until

OLDER, NEWEST = LIVE_VERSIONS[-2:]
dialects = sys.modules["nats_transforms.dialect"]  # the package has a function of that name


@pytest.fixture
def short_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table ends with 2.10.26."""
    monkeypatch.setattr(tested_versions, "NEWEST_PATCHES", {(2, 9): 25, (2, 10): 26})


async def test_it_is_reported_once_for_each_version(
    native_server: Servers, raw_peer: OpenPeer, short_table: None
) -> None:
    async with native_server(OLDER) as server:
        here = await Scene.make(await raw_peer(server.url), "S")
        with capture_logs() as lines:

            def reported() -> list[str]:
                return [line["meaning"] for line in lines if line["event"] == "connection.untested_server"]

            async with running(settings_for(server.url, here.rule(), **FREE)) as bridge:
                connection = bridge.connections["default"]
                newer_patch = reported()
                await asyncio.to_thread(server.restart)
                await until(lambda: connection.reconnects == 1)
                assert reported() == newer_patch
                await asyncio.to_thread(server.upgrade, NEWEST)
                await until(lambda: connection.reconnects == 2)
                newer_line = reported()[1:]
                assert (await status_of(bridge))["connections"][0]["untested_server"] == newer_line[0]
    assert [text.partition(":")[0] for text in newer_patch + newer_line] == [
        f"nats-server {OLDER} is newer than 2.10.26, the newest of its line that this release was compared with, and is"
        " treated like it",
        f"nats-server {NEWEST} is of a minor line that this release was not compared with, and is treated like 2.10.26",
    ]


async def test_a_republish_rule_runs_on_a_line_without_a_dialect(
    native_server: Servers, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (dialects, transforming, schema):
        monkeypatch.setattr(module, "NEWEST_PATCHES", {(2, 9): 25, (2, 10): 27})
    dialects.dialect.cache_clear()
    try:
        async with native_server(NEWEST) as server:
            here = await Scene.make(await raw_peer(server.url), "S")
            async with running(settings_for(server.url, here.rule(), dialect="native", **FREE)):
                await here.peer.store(b"S.a", b"1")
                await here.bridged.count(1)
    finally:
        dialects.dialect.cache_clear()


async def test_status_metrics_and_check_show_it(
    native_server: Servers, raw_peer: OpenPeer, short_table: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remark = f"nats-server {NEWEST} is of a minor line"
    config = tmp_path / "bridge.yaml"
    async with native_server(NEWEST) as server:
        here = await Scene.make(await raw_peer(server.url), "S")
        config.write_text(json.dumps(document(server.url, here.rule())), "utf-8")

        def check(*options: str) -> int:
            with pytest.raises(SystemExit) as ended:
                main(["check", "-c", str(config), "--server", "config", *options])
            return int(str(ended.value.code))

        assert await asyncio.to_thread(check) == 0
        assert f"but connection 'default': {remark}" in capsys.readouterr().out
        assert await asyncio.to_thread(check, "--json") == 0
        findings = json.loads(capsys.readouterr().out)["findings"]
        assert [(finding["ok"], finding["code"]) for finding in findings] == [(True, "untested_server"), (True, "good")]

        async with running(settings_for(server.url, here.rule(), **FREE)) as bridge:
            assert f"\n  {remark}" in click.unstyle("\n".join(status_lines(await status_of(bridge), 200)))
            assert (await scrape(bridge)).value("connection_untested_server", connection="default") == 1
