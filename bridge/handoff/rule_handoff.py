"""From a rule to what takes over from it, or what it takes back: one table of the kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.client.connection_pool import close_links, open_links
from nats_bridge.bridge.errors import ConfigError
from nats_bridge.bridge.handoff.answer import Handoff, refused
from nats_bridge.bridge.handoff.back import copying_back
from nats_bridge.bridge.handoff.takeover import take_over_from_sidecar
from nats_bridge.bridge.kinds.copying.handoff import CopyingHandoff
from nats_bridge.bridge.kinds.ingress.handoff import ingress_back, ingress_handoff
from nats_bridge.bridge.kinds.republish.handoff import republish_back, republish_handoff
from nats_bridge.bridge.settings import (
    AdvisoriesRule,
    KvSourcesRule,
    MirrorRule,
    RepublishRule,
    Rule,
    Settings,
    SourcesRule,
    SubjectTransformRule,
)

__all__ = ["Wish", "hand_over"]


@dataclass(frozen=True, slots=True)
class Wish:
    """How to hand over.

    Attributes:
        back: from the server to the bridge.
        after: per origin, the last sequence that was copied, where the target cannot tell.
        apply: send the update.
    """

    back: bool = False
    after: Mapping[str, int] = field(default_factory=dict)
    apply: bool = False


async def hand_over(settings: Settings, name: str, wish: Wish) -> Handoff:
    """The configuration that takes over from a rule; sent, if wished.

    Args:
        settings: the configuration.
        name: the rule's name.
        wish: how.

    Raises:
        ConfigError: there is no such rule, or no such origin.
        BridgeError: a server cannot be reached or asked, a stream does not exist, or the update was refused.
    """
    rule = next((rule for rule in settings.rules if rule.name == name), None)
    if rule is None:
        known = ", ".join(rule.name for rule in settings.rules) or "none"
        raise ConfigError(f"rule '{name}': not in the configuration; there are {known}")
    if isinstance(rule, MirrorRule):
        return _mirror(rule)
    if isinstance(rule, AdvisoriesRule):
        return refused("servers do not republish advisories: nothing can take over, leave this rule to the bridge")
    _check_origins(rule, wish)
    links = await open_links(settings, set(rule.connections))
    try:
        answer = await _answer(rule, settings, links, wish)
        if answer.ok and wish.apply:
            answer = await _applied(rule, settings, links, answer, wish)
        return answer
    finally:
        await close_links(links.values())


async def _answer(
    rule: RepublishRule | SourcesRule | KvSourcesRule | SubjectTransformRule,
    settings: Settings,
    links: Mapping[str, Link],
    wish: Wish,
) -> Handoff:
    match rule:
        case RepublishRule():
            return await (republish_back if wish.back else republish_handoff)(rule, settings.name, links)
        case SourcesRule() | KvSourcesRule():
            if wish.back:
                return await copying_back(rule, links)
            look = CopyingHandoff(rule, settings.dialect_of(rule), links, after=wish.after, sidecar=settings.name)
            return await look.answer()
        case SubjectTransformRule():
            return await (ingress_back if wish.back else ingress_handoff)(rule, links[rule.connection])
    assert_never(rule)


async def _applied(
    rule: RepublishRule | SourcesRule | KvSourcesRule | SubjectTransformRule,
    settings: Settings,
    links: Mapping[str, Link],
    answer: Handoff,
    wish: Wish,
) -> Handoff:
    assert answer.update is not None
    stream = answer.update["name"]
    if isinstance(rule, RepublishRule) and rule.durable and not wish.back and len(answer.steps) > 1:
        end = await take_over_from_sidecar(rule, settings.name, settings.dialect_of(rule), links, answer.update)
        return Handoff(
            answer.update,
            (
                f"Sent. Stream '{stream}': everything up to sequence {end} was republished by the bridge, the server"
                f" republishes what is behind it.",
                f"The rule's consumer is removed; do not start rule '{rule.name}' again.",
            ),
        )
    link = links[rule.target_connection if isinstance(rule, (SourcesRule, KvSourcesRule)) else rule.connections[0]]
    await link.api.request(f"STREAM.UPDATE.{stream}", answer.update)
    return Handoff(answer.update, (*answer.steps, f"Sent: $JS.API.STREAM.UPDATE.{stream} was accepted."))


def _mirror(rule: MirrorRule) -> Handoff:
    filtered = rule.mirror.filter_subject or rule.mirror.subject_transforms
    how = "with the same filter or transforms " if filtered else ""
    # Copies that keep the origin's sequences carry no record that anything else could go on from.
    other = (
        ""
        if rule.keep_sequence
        else "; or write the rule as kind: sources (it goes on from the same copies) and hand that over"
    )
    return refused(
        f"stream '{rule.stream}' cannot become a native mirror: servers refuse that (10055). Create a native mirror of"
        f" '{rule.mirror.name}' {how}beside it and let readers move there{other}"
    )


def _check_origins(rule: Rule, wish: Wish) -> None:
    origins = {source.name for source in rule.entries} if isinstance(rule, (SourcesRule, KvSourcesRule)) else set()
    for origin in wish.after:
        if origin not in origins:
            known = f"; its origins are {', '.join(sorted(origins))}" if origins else ""
            raise ConfigError(f"--after {origin}=…: rule '{rule.name}' copies nothing from it{known}")
