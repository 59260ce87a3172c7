"""Checks the cluster before anything runs, and reports for all rules at once why `run` would refuse to start."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from nats_bridge.client.connection import Connection
from nats_bridge.client.connection_pool import connected, connections_of
from nats_bridge.errors import BridgeError
from nats_bridge.rules.context import Assembly
from nats_bridge.rules.finding import CheckFinding
from nats_bridge.rules.loops.account_graph import AccountGraph
from nats_bridge.settings import Settings

_Answer = TypeVar("_Answer")


async def check_server(settings: Settings, server_url: str | None) -> list[CheckFinding]:
    """Check every rule against its servers without creating anything there.

    Args:
        server_url: used instead of every connection's servers, if given.

    Raises:
        ServerUnreachableError, CredentialsError: a connection cannot be opened.
    """
    return await with_server(settings, server_url, _findings)


async def with_server(
    settings: Settings,
    server_url: str | None,
    question: Callable[[Settings, dict[str, Connection]], Awaitable[_Answer]],
) -> _Answer:
    """Open the configuration's connections, return the answer of `ask`, and close them.

    Args:
        server_url: used instead of every connection's servers, if given.
        question: called with the configuration and its open connections.

    Raises:
        ServerUnreachableError, CredentialsError: a connection cannot be opened.
    """
    if server_url is not None:
        other: dict[str, object] = {"servers": (server_url,), "context": None}
        if "@" in server_url:  # the URL also holds credentials
            other |= dict.fromkeys(("creds", "nkey_seed_file", "token_file", "user", "password_file"))
        connections = {name: connection.model_copy(update=other) for name, connection in settings.connections.items()}
        settings = settings.model_copy(update={"connections": connections})
    async with connected(settings, connections_of(settings)) as opened:
        return await question(settings, opened)


async def _findings(settings: Settings, opened: dict[str, Connection]) -> list[CheckFinding]:
    assembly = Assembly(settings, opened, AccountGraph(settings, opened, patiently=True))
    outlook = await assembly.loops.look()
    findings = [
        CheckFinding("", True, "untested_server", f"connection '{name}': {connection.untested_server}")
        for name, connection in opened.items()
        if connection.untested_server is not None
    ]
    findings += [CheckFinding("", True, "not_seen", reason) for reason in outlook.unseen]
    findings += [CheckFinding("", True, "native_loop", str(loop)) for loop in outlook.native]
    for rule in settings.rules:
        if loop := outlook.of(rule.name):
            findings.append(CheckFinding(rule.name, False, "loop", str(loop)))
            continue
        run = assembly.make_run(rule)
        try:
            await run.check()
        except BridgeError as error:
            findings.append(CheckFinding(rule.name, False, error.code, str(error), error.err_code))
        else:
            findings.append(CheckFinding(rule.name, True, "good", "streams found, no conflicts"))
            findings += [CheckFinding(rule.name, True, "diverges", remark) for remark in run.remarks]
    return findings
