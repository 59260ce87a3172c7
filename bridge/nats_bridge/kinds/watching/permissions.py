"""The permissions that watching an account needs."""

from collections.abc import Iterator

from nats_bridge.kinds.watching.model import WatchRule
from nats_bridge.permissions.need import ANY_STREAM, Need, api_subject, write
from nats_bridge.permissions.reading import replays


def account_needs(connection: str) -> Iterator[Need]:
    """Yield the needs of comparing an account's links.

    For a source elsewhere, the same are needed with its API prefix.
    """
    yield write(connection, api_subject("INFO"), "the account's limits")
    yield write(connection, api_subject("STREAM.LIST"), "finds mirrors and sources")
    yield write(connection, api_subject("STREAM.INFO", ANY_STREAM), "how far source and target are")
    newest = "the newest copy, and the first that is missing"
    yield write(connection, api_subject("STREAM.MSG.GET", ANY_STREAM), newest)
    yield from replays(connection, ANY_STREAM)


def watch_needs(rule: WatchRule) -> Iterator[Need]:
    """Yield the needs of one rule; see `RuleKind.needs`."""
    yield from account_needs(rule.connection)
    if rule.on_stall == "step_down":
        yield write(
            rule.connection,
            api_subject("STREAM.LEADER.STEPDOWN", ANY_STREAM),
            "has the leader of a stalled copy step down",
            without="stalls are only reported",
        )
