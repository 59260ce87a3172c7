"""`check --permissions --nsc`: a user whose JWT has the printed permissions, on a server with an operator."""

from __future__ import annotations

import asyncio
import csv
import re
from pathlib import Path

import yaml

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.permissions.granting import grants_of
from nats_bridge.settings import load
from tests.live.commands import command_here
from tests.live.conftest import Connect
from tests.live.security.credentials import Operator
from tests.live.security.permitted import used
from tests.live.shared_servers import Servers
from tests.live.until import LIMIT, until

ADMIN, LIMITED = 1, 2
# What a shell hands to nsc, each argument on a line.
NSC = "nsc() { printf '%s\\n' \"$@\"; }\n"


async def claims_of(commands: str) -> dict[str, dict[str, list[str]]]:
    """Run printed commands in bash; `pub` and `sub` of the JWT that nsc makes of its arguments."""
    shell = await asyncio.create_subprocess_exec("bash", "-c", NSC + commands, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(LIMIT):
        printed, _ = await shell.communicate()
    assert shell.returncode == 0
    edit, user, name, my_name, *options = printed.decode().splitlines()
    assert (edit, user, name, my_name) == ("edit", "user", "--name", "NAME")
    claims: dict[str, dict[str, list[str]]] = {}
    for option, value in zip(options[::2], options[1::2], strict=True):
        found = re.fullmatch("--(allow|deny)-(pub|sub)", option)
        assert found is not None, option
        (subjects,) = csv.reader([value])  # nsc reads a value as a line of them
        claims.setdefault(found[2], {}).setdefault(found[1], []).extend(subjects)
    return claims


async def test_a_user_with_the_printed_permissions_runs_the_rules(
    native_server: Servers, connect: Connect, twin_version: str, tmp_path: Path
) -> None:
    operator = Operator()
    admin, limited = tmp_path / "admin.creds", tmp_path / "limited.creds"
    admin.write_text(operator.creds(ADMIN), "utf-8")
    limited.write_text(operator.creds(LIMITED), "utf-8")  # none so far
    text = f"jetstream: enabled\ntrace: true\n{operator.config()}"
    async with native_server(twin_version, config=text) as server:
        settings = {
            "connections": {"default": {"servers": [server.url], "creds": str(limited), "inbox_prefix": "_IN_side"}},
            "http": {"listen": ""},
            "rules": [
                {
                    "name": "chosen",
                    "kind": "republish",
                    "stream": "ORDERS",
                    "republish": {"src": "orders.*.*.*", "dest": "$1.$2.$3"},
                },
                {"name": "odd", "kind": "republish", "stream": "ODD", "republish": {"src": "o.*", "dest": 'a,b"c.$1'}},
            ],
        }
        config = tmp_path / "bridge.yaml"
        config.write_text(yaml.safe_dump(settings), "utf-8")
        printed = await command_here("check", "-c", str(config), "--permissions", "--nsc")
        assert printed.code == 0, printed.err
        claims = await claims_of(printed.out)
        (granted,) = grants_of(load(config))
        assert claims["pub"] == {"allow": granted.subjects("publish"), "deny": list(granted.denied)}
        assert claims["sub"] == {"allow": granted.subjects("subscribe")}
        assert granted.denied

        limited.write_text(operator.creds(LIMITED, permissions=claims), "utf-8")
        client = await connect(server, user_credentials=str(admin))
        streams = client.jetstream()
        await streams.add_stream(name="ORDERS", subjects=["orders.*.*.*"])
        await streams.add_stream(name="ODD", subjects=["o.*"])
        received: list[str] = []

        async def receive(message: object) -> None:
            received.append(str(getattr(message, "subject", "")))

        await client.subscribe("eu.*.*", cb=receive)
        await client.subscribe('a,b"c.>', cb=receive)
        await client.flush()
        sidecar = Sidecar(load(config))
        await sidecar.start()
        try:
            await until(lambda: all(supervisor.ready for supervisor in sidecar.supervisors))
            await streams.publish("orders.eu.west.1", b"an order")
            await streams.publish("o.1", b"another")
            await until(lambda: sorted(received) == ['a,b"c.1', "eu.west.1"])
            assert sidecar.error is None
        finally:
            await sidecar.stop()
        assert used(server.log_file).refused == {}

        other = await connect(server, user_credentials=str(limited))
        await other.publish("$JS.API.STREAM.PURGE.ORDERS", b"")
        await other.flush()
        await until(lambda: bool(used(server.log_file).refused))
