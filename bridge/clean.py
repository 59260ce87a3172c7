"""Removing what the sidecar leaves on servers: the durable consumers that keep its rules' positions."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.errors import ApiError, ConfigError
from bridge.jetstream_api import STREAM_NOT_FOUND, JetStreamApi
from bridge.links import close_links, open_links
from bridge.rule_consumer import consumer_owner, durable_name
from bridge.settings import RepublishRule, Settings

__all__ = ["clean"]


async def clean(settings: Settings, rules: Sequence[str]) -> list[str]:
    """Delete the rules' durable consumers; the next start of such a rule follows its `start` again.

    Args:
        settings: the configuration.
        rules: names of rules; empty for all.

    Returns:
        One line per rule: what was removed, or that there was nothing.

    Raises:
        ConfigError: there is no such rule.
        ServerUnreachableError, CredentialsError, ApiError: the server cannot be asked.
    """
    known = {rule.name: rule for rule in settings.rules}
    for name in rules:
        if name not in known:
            raise ConfigError(f"rule '{name}': not in the configuration; there are {', '.join(known) or 'none'}")
    chosen = [known[name] for name in (rules or known)]
    links = await open_links(settings, {rule.source_connection for rule in chosen if isinstance(rule, RepublishRule)})
    try:
        lines = []
        for rule in chosen:
            if not isinstance(rule, RepublishRule):
                lines.append(f"rule '{rule.name}': nothing to remove: rules of kind {rule.kind} leave nothing behind")
                continue
            consumer = durable_name(settings.name, rule.name)
            owner = consumer_owner(settings.name, rule.name)
            what = await _remove(links[rule.source_connection].api, rule.stream, consumer, owner)
            lines.append(f"rule '{rule.name}': {what} consumer '{consumer}' of stream '{rule.stream}'")
        return lines
    finally:
        await close_links(links.values())


async def _remove(api: JetStreamApi, stream: str, consumer: str, owner: str) -> str:
    try:
        info = await api.consumer_info(stream, consumer)
        if info is None:
            return "nothing to remove:"
        if not str(info["config"].get("description", "")).startswith(owner):
            return "left alone, because it is not this rule's:"
        await api.delete_consumer(stream, consumer)
    except ApiError as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
        return "nothing to remove:"
    return "removed"
