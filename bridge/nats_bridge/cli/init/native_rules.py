"""Finds the parts of a native stream configuration that a server does not provide, and the rules that do. Pure.

The configuration is taken apart into its features: republish, the ingress transform, each source, the mirror. The
engine decides of each alone whether a server of a version does it, refuses it, or leaves something out silently.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nats_bridge.cli.init.rule_text import configuration_text
from nats_bridge.client.jetstream_api import Json
from nats_bridge.errors import ConfigError
from nats_bridge.kinds.copying.entry_subjects import destinations
from nats_bridge.kinds.republish.side_effects import CONSUMER_RETENTIONS
from nats_bridge.rules.handoff.stream_body import HARMLESS, body_of
from nats_bridge.settings import loads
from nats_bridge.settings.base import MAX_NAME_LENGTH
from nats_transforms.dialect import NEWEST, server_dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.sourcing import compile_sourcing
from nats_transforms.stream_config import examine
from nats_transforms.transform import compile_transform

_MEMBERS: Final = ("republish", "subject_transform", "sources", "mirror")
"""The members of a configuration that rules can provide; their kinds have the same names."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The server that rules would run next to.

    Attributes:
        version: the server's version, such as `2.9.10`.
        streams: the configurations of its streams, by name; None if the server was not asked.
    """

    version: str
    streams: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class NativeFeature:
    """A feature of a configuration, and who provides it.

    Attributes:
        place: the position in the configuration, such as `sources[0], from ORDERS`.
        member: the member of the configuration.
        value: the value of that member with this feature alone; for `sources` a list with one entry.
        undone: the reason why the server does not provide it; empty if it does.
        obstacle: the reason why no rule can provide it; empty if one can.
    """

    place: str
    member: str
    value: Any
    undone: str = ""
    obstacle: str = ""

    @property
    def answer(self) -> str:
        """The provider of the feature: `native`, `rule` or `neither`."""
        if not self.undone:
            return "native"
        return "neither" if self.obstacle else "rule"


@dataclass(frozen=True, slots=True)
class NativeRule:
    """A rule that provides what a server does not.

    Attributes:
        data: the rule in a configuration's form.
        why: sentences on what the server does not provide, and on what the rule requires of the stream.
    """

    data: dict[str, Any]
    why: tuple[str, ...]


def native_rules(given: Any, server: Surroundings) -> tuple[str, list[NativeFeature], list[NativeRule]]:
    """Compare a configuration with a server.

    Args:
        given: the native configuration, as in STREAM.CREATE or STREAM.INFO.

    Returns:
        The stream's name, the features, and the rules for those that the server does not provide.

    Raises:
        ConfigError: no version of the server takes the configuration.
    """
    if not isinstance(given, dict) or not isinstance(given.get("name"), str) or not given["name"]:
        raise ConfigError("not a stream configuration with a name: give the output of `nats stream info NAME --json`")
    stream = given["name"]
    try:
        wanted = examine(body_of(given), NEWEST, strict=False).config
    except StreamConfigError as error:
        raise ConfigError(
            f"stream '{stream}': every server rejects this configuration: {error.description} ({error.err_code})"
        ) from None
    features: list[NativeFeature] = []
    rules: list[NativeRule] = []
    for place, member, value in _parts(wanted):
        undone = _undone(wanted, member, value, place, server)
        obstacle = _obstacle(wanted, member, value) if undone else ""
        features.append(NativeFeature(place, member, value, undone, obstacle))
    for member in _MEMBERS:
        mine = [each for each in features if each.member == member and each.answer == "rule"]
        if mine:
            values = [entry for each in mine for entry in each.value] if member == "sources" else mine[0].value
            why = dict.fromkeys(f"{each.undone[:1].upper()}{each.undone[1:]}." for each in mine)
            rules.append(NativeRule(_rule(wanted, member, values), (*why, *_needs(stream, member, values))))
    return stream, features, rules


def _parts(wanted: Json) -> Iterator[tuple[str, str, Any]]:
    """Yield the features: the place of each, its member, and the member with this feature alone."""
    for member in ("republish", "subject_transform"):
        value = wanted.get(member) or {}
        if value.get("dest"):
            yield f"{member} {value.get('src') or '>'} to {value['dest']}", member, value
    for number, entry in enumerate(wanted.get("sources") or ()):
        yield f"sources[{number}], from {entry['name']}", "sources", [entry]
    if mirror := wanted.get("mirror"):
        yield f"mirror, of {mirror['name']}", "mirror", mirror


def _undone(wanted: Json, member: str, value: Any, place: str, server: Surroundings) -> str:
    """Return the reason why the server does not provide a feature; empty if it does."""
    stream, version, known = str(wanted["name"]), server_dialect(server.version), server.streams
    others = None if known is None else {name: config for name, config in known.items() if name != stream}
    said = f"server {server.version}"
    try:
        accepted = examine(_alone(wanted, member, value), version, strict=False, sources=others)
    except StreamConfigError as error:
        return f"{said} refuses it: {error.description} ({error.err_code})"
    for warning in accepted.warnings:
        if re.match(rf"{member}\b", warning.member) and warning.id not in HARMLESS:
            sentence = warning.sentence.replace("sources[0]", place.partition(",")[0])
            rest = sentence.removeprefix("the server ")
            return f"{said}{' ' if rest != sentence else ': '}{rest}"
    present = (known or {}).get(stream)
    if present is None:
        return ""
    if member == "sources":
        there = [entry for entry in present.get("sources") or () if _identity(entry) != _identity(value[0])]
        value = [*there, *value]
    try:
        examine({**body_of(present), member: value}, version, previous=present, sources=others, strict=False)
    except StreamConfigError as error:
        return f"{said} refuses it for a stream that is there: {error.description} ({error.err_code})"
    return ""


def _alone(wanted: Json, member: str, value: Any) -> Json:
    """Return a configuration with only this feature."""
    alone: Json = {"name": wanted["name"]}
    if member in ("republish", "subject_transform"):
        # The stream's subjects decide whether this feature fits.
        alone["subjects"] = wanted.get("subjects") or []
        if mirror := wanted.get("mirror"):
            alone["mirror"] = {"name": mirror["name"]}
        if sources := wanted.get("sources"):
            alone["sources"] = [{"name": name} for name in dict.fromkeys(entry["name"] for entry in sources)]
    return {**alone, member: value}


def _identity(entry: Json) -> tuple[object, ...]:
    # A server distinguishes entries by these parts.
    transforms = [(each.get("src"), each.get("dest")) for each in entry.get("subject_transforms") or ()]
    return entry["name"], entry.get("filter_subject") or "", transforms, (entry.get("external") or {}).get("api")


def _obstacle(wanted: Json, member: str, value: Any) -> str:
    """Return the reason why no rule can provide a feature; empty if one can."""
    if member == "subject_transform":
        source = value.get("src") or ">"
        if source not in (wanted.get("subjects") or ()):
            return f"a rule takes whole subjects of a stream from it, and '{source}' is none of them"
    for entry in _entries(member, value):
        if entry.get("external"):
            return (
                f"a rule needs a connection that reaches '{entry['name']}', and only this one is known here: write the"
                " rule yourself, with from:"
            )
    text = configuration_text({"servers": ["nats://127.0.0.1:4222"]}, [NativeRule(_rule(wanted, member, value), ())])
    try:
        loads(text, Path(), "", {})
    except ConfigError as error:
        return error.found[0].within(("rules", 0))
    return ""


def _entries(member: str, value: Any) -> list[Json]:
    if member == "mirror":
        return [value]
    return list(value) if member == "sources" else []


def _rule(wanted: Json, member: str, value: Any) -> dict[str, Any]:
    """Return the rule for a member: the native objects without their empty members."""
    ending = {"republish": "-republish", "subject_transform": "-ingress"}.get(member, f"-{member}")
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", str(wanted["name"]))[: MAX_NAME_LENGTH - len(ending)] + ending
    rule = {"name": name, "kind": member, "stream": wanted["name"], member: _filled(value)}
    if member == "republish" and wanted.get("retention") in CONSUMER_RETENTIONS:
        rule["durable"] = False  # a position on the server would be interest in the messages
    return rule


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each) for key, each in value.items() if each not in (None, "", [], {}, 0, False)}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _needs(stream: str, member: str, value: Any) -> Iterator[str]:
    """Yield the changes of the stream that a rule needs, unless they are made: sentences."""
    if member == "subject_transform":
        source = value.get("src") or ">"
        stored = compile_transform(source.encode(), value["dest"].encode(), NEWEST).covering.decode()
        yield f"It needs stream {stream} to take {stored} instead of {source}."
    if entries := _entries(member, value):
        taken = [pattern.decode() for entry in entries for pattern in destinations(compile_sourcing(entry, NEWEST))]
        names = " and ".join(dict.fromkeys(entry["name"] for entry in entries))
        native = "to be no native mirror" if member == "mirror" else f"to have no native source {names} for these"
        yield f"It needs stream {stream} to take {', '.join(dict.fromkeys(taken))}, and {native}."
