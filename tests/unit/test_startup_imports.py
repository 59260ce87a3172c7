"""What commands load: starting is fast because of what they leave out, so that is what is held here."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = "config/republish-monitor.yaml"

# The command's own output is discarded; stdout lists the modules that were loaded when it ended.
_PROBE = """
import contextlib, io, json, sys
from nats_bridge.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(sys.argv[1:])
loaded = [name for name, module in sys.modules.items() if type(module).__name__ != "_LazyModule"]
print(json.dumps(loaded))
"""

_HEAVY = ("aiohttp", "asyncio", "nats", "opentelemetry", "prometheus_client", "structlog", "tenacity")


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    names: list[str] = json.loads(done.stdout)
    return set(names)


@pytest.mark.parametrize(
    "command",
    [("--help",), ("--version",), ("explain", "a.*", "b.$1", "a.x"), ("check", "-"), ("check", "-c", GOOD)],
    ids=lambda command: command[0].strip("-"),
)
def test_commands_that_ask_no_server_load_no_client(command: tuple[str, ...]) -> None:
    loaded = loaded_by(*command)
    assert "nats_bridge.cli.entry" in loaded
    assert loaded.isdisjoint({*_HEAVY} - ({"asyncio"} if command[0] == "check" else set()))  # pydantic-settings has it
    if command[0] != "check":
        assert loaded.isdisjoint({"pydantic", "yaml", "nats_bridge.settings"}), "it needs no configuration"


def test_checking_asks_the_engine_only_about_kinds_of_rules_that_are_there() -> None:
    assert "nats_transforms.stream_config" not in loaded_by("check", "-c", GOOD)
    assert "nats_transforms.stream_config" in loaded_by("check", "-c", "config/eu-sources.yaml")


def has_no_listener(folder: Path, listen: str) -> str:
    """A configuration with which `run` ends where it would connect."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    file = folder / "bridge.yaml"
    file.write_text(
        f'connections: {{default: {{servers: ["nats://127.0.0.1:{port}"]}}}}\nhttp: {{listen: "{listen}"}}\n'
        "fail_fast: true\n"
        "rules: [{name: a, kind: republish, stream: S, republish: {dest: b.>}}]\n"
    )
    return str(file)


def test_a_sidecar_loads_neither_telemetry_nor_http_without_being_asked(tmp_path: Path) -> None:
    loaded = loaded_by("run", "-c", has_no_listener(tmp_path, ""))
    assert {"nats_bridge.app.sidecar", "nats.aio.client"} <= loaded
    assert loaded.isdisjoint(
        {"aiohttp", "nats.js", "opentelemetry", "prometheus_client", "nats_transforms.stream_config"}
    )


def test_a_rule_loads_neither_handoff_nor_permissions() -> None:
    script = """
import sys
import nats_bridge.app.sidecar
from nats_bridge.rule_kinds import kind_named

for kind in ("republish", "sources", "subject_transform"):
    assert kind_named(kind).run
needed_by_commands = ("nats_transforms.stream_config", "nats_bridge.permissions")
assert not [name for name in sys.modules if name.startswith(needed_by_commands)]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_sidecar_with_a_listener_loads_what_serves_http(tmp_path: Path) -> None:
    loaded = loaded_by("run", "-c", has_no_listener(tmp_path, "127.0.0.1:0"))
    assert {"aiohttp.web", "prometheus_client"} <= loaded
    assert "opentelemetry" not in loaded


def test_a_websocket_loads_aiohttp_and_works() -> None:
    script = """
import asyncio, sys
from nats_bridge.client import nats_py
from nats.aio.transport import WebSocketTransport

assert "aiohttp.client" not in sys.modules

async def opened():
    transport = WebSocketTransport()
    assert transport
    await transport._client.close()

asyncio.run(opened())
import aiohttp
from aiohttp import web
assert type(aiohttp).__name__ == "module" and web.Response
"""
    subprocess.run([sys.executable, "-c", script], check=True)
