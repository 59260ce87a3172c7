"""What the sidecar itself needs, whatever its rules do: answers, and a look at the accounts for loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from nats_bridge.bridge.permissions.need import Need, api_subject, listen, write

__all__ = ["account_needs"]


def account_needs(inboxes: Mapping[str, str], looked_at: Set[str]) -> Iterator[Need]:
    """The needs of the connections.

    Args:
        inboxes: by connection, the prefix of its inboxes.
        looked_at: the connections that rules use: only their accounts are looked at for loops.
    """
    for connection, prefix in inboxes.items():
        yield listen(connection, f"{prefix}.>", "answers and deliveries")
        if connection not in looked_at:
            continue
        yield write(
            connection,
            api_subject("STREAM.LIST"),
            "looks for loops",
            without="loops through streams that no rule names are not found",
        )
        for other, theirs in inboxes.items():
            if other != connection and other in looked_at:
                yield write(
                    connection,
                    f"{theirs}.>",
                    f"sees whether connection {other} reaches the same account",
                    without="loops through both connections are not found, unless both list the same streams",
                )
