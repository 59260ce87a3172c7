"""Permissions as a block to paste into a server's configuration, and as plain data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from nats_bridge.bridge.permissions.granting import ConnectionGrants, Grant

__all__ = ["as_data", "as_text"]

_SHARED_INBOXES = "_INBOX"


def as_text(connections: Sequence[ConnectionGrants]) -> str:
    """One `permissions` block per connection, as nats-server reads it, with a comment behind every line."""
    return "\n".join(line for connection in connections for line in _block(connection))


def as_data(connections: Sequence[ConnectionGrants]) -> dict[str, Any]:
    """The same as plain data: per connection the permissions as a server's configuration has them, and the lines."""
    return {
        "connections": [
            {
                "name": connection.connection,
                "permissions": {
                    "publish": {"allow": connection.subjects("publish")},
                    "subscribe": {"allow": connection.subjects("subscribe")},
                },
                "lines": [
                    {
                        "way": grant.way,
                        "subject": grant.subject,
                        "optional": grant.optional,
                        "without": grant.without or None,
                        "why": [{"what": what, "rules": list(rules)} for what, rules in grant.reasons],
                    }
                    for grant in connection.grants
                ],
            }
            for connection in connections
        ]
    }


def _block(connection: ConnectionGrants) -> Iterable[str]:
    yield f"# connection '{connection.connection}': the permissions of its user"
    if connection.inbox_prefix == _SHARED_INBOXES:
        yield "# with an inbox_prefix of its own, this user could not hear the answers that others get"
    yield "permissions: {"
    for way in ("publish", "subscribe"):
        grants = [grant for grant in connection.grants if grant.way == way]
        if not grants:
            # An empty list would allow everything.
            yield f'  {way}: {{ deny: [">"] }}'
            continue
        yield f"  {way}: {{ allow: ["
        width = max(len(json.dumps(grant.subject)) for grant in grants)
        for grant in grants:
            yield f"    {json.dumps(grant.subject, ensure_ascii=False):{width}}  # {_comment(grant)}"
        yield "  ] }"
    yield "}"


def _comment(grant: Grant) -> str:
    by_rules: dict[tuple[str, ...], list[str]] = {}
    for what, rules in grant.reasons:
        by_rules.setdefault(rules, []).append(what)
    reasons = "; ".join(
        ", ".join(whats) + (f" ({', '.join(rules)})" if rules else "") for rules, whats in by_rules.items()
    )
    return f"OPTIONAL: {reasons}; without it {grant.without}" if grant.optional else reasons
