"""The page on the configuration: every key, from the JSON schema."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from docs.reference.markdown import code, fenced, table
from nats_bridge.rule_kinds import rule_models
from nats_bridge.settings.schema import configuration_schema


@dataclass(frozen=True, slots=True)
class _Section:
    """A mapping of the configuration.

    Attributes:
        model: its name in the schema's definitions; empty for the whole file.
        heading: where it stands in the file.
        example: a configuration, or its `rules`, that shows it.
        more: a sentence with links, below its description.
        obvious: whether the description would only repeat the heading.
    """

    model: str
    heading: str
    example: str = ""
    more: str = ""
    obvious: bool = False


_SHARED: Final = "Shared keys"
_KIND: Final = ("`kind`", "the kind of the rule, as in the headings below", "string, required")
_ORDERS: Final = 'republish: {src: "orders.>", dest: "monitor.orders.>"}'
_GUIDES: Final = {
    "republish": "republish.md",
    "sources": "copying.md",
    "mirror": "copying.md#mirror-and-keep_sequence",
    "kv_sources": "buckets.md",
    "subject_transform": "subject-transform.md",
    "advisories": "advisories.md",
    "watch": "watch.md#as-a-rule-of-a-sidecar",
}
"""The page about a kind of rule, if its keys and its example do not suffice."""

_OBJECTS: Final = {
    "republish": (_Section("RepublishObject", "A republish object", obvious=True),),
    "mirror": (
        _Section("Source", "A source"),
        _Section("SubjectTransform", "A subject transform", obvious=True),
        _Section("External", "external"),
        _Section("HeaderEquals", "where"),
    ),
    "kv_sources": (_Section("KvSource", "A source bucket", obvious=True),),
}
"""Mappings that several kinds have or that need other headings than their keys, after the section on a kind."""

_TOLD: Final = {section.model for several in _OBJECTS.values() for section in several}
_MODELS: Final = configuration_schema()["$defs"]


def _sections_of(kind: str) -> Iterator[_Section]:
    model, guide = rule_models()[kind].__name__, f"[Guide](../{_GUIDES[kind]})." if kind in _GUIDES else ""
    yield _Section(model, f"Rule {kind}", "", guide)
    yield from _OBJECTS.get(kind, ())
    for key, field in _MODELS[model]["properties"].items():
        for name in re.findall(r"#/\$defs/(\w+)", json.dumps(field)):
            if "properties" in _MODELS[name] and name not in _TOLD:
                yield _Section(name, key)


_SECTIONS: Final = (
    _Section(
        "",
        "The file",
        'name: orders-bridge\nconnections:\n  default: {servers: ["nats://127.0.0.1:4222"]}\n'
        f"rules:\n  - name: monitor\n    kind: republish\n    stream: ORDERS\n    {_ORDERS}",
        obvious=True,
    ),
    _Section(
        "Connection",
        "A connection",
        'connections:\n  default: {servers: ["nats://127.0.0.1:4222"]}\n'
        '  west: {servers: ["tls://west.example.com:4222"], creds: secrets/west.creds}',
        "[Guide](../security.md#credentials).",
    ),
    _Section(
        "Tls",
        "TLS of a connection",
        'connections:\n  default:\n    servers: ["tls://nats.example.com:4222"]\n'
        "    tls: {ca: secrets/ca.pem, cert: secrets/client.pem, key: secrets/client.key}",
        "[Guide](../security.md#tls).",
        obvious=True,
    ),
    _Section(
        "Http",
        "http",
        'http: {listen: ":8322", hosts: ["bridge.example.com"], changes_from: nowhere}',
        "[Guide](../health.md#endpoints).",
    ),
    _Section("Log", "log", "", "[Guide](../logs.md)."),
    _Section(
        "LeadershipSettings",
        "leadership",
        "leadership: {bucket: BRIDGE_LEASES, ttl: 5}",
        "[Guide](../replicas.md).",
    ),
    _Section("Reload", "reload", "", "[Guide](../reload.md)."),
    _Section("Telemetry", "telemetry", "", "[Guide](../telemetry.md#traces)."),
    _Section(
        _SHARED,
        _SHARED,
        "",
        "Every rule has `kind` and `name`. The section on each kind below lists which of the other shared keys it"
        " accepts.",
    ),
    *(section for kind in rule_models() for section in _sections_of(kind)),
    _Section(
        "RuleTest",
        "A test",
        f"rules: [{{name: monitor, kind: republish, stream: ORDERS, {_ORDERS}}}]\n"
        "tests:\n  - name: an order is republished\n    rule: monitor\n"
        "    given: {subject: orders.1}\n    expect: [{subject: monitor.orders.1}]",
        "[Guide](../testing-rules.md).",
    ),
    _Section("GivenMessage", "given", obvious=True),
    _Section("ExpectedMessage", "expect"),
)
_HEADINGS: Final = {section.model: section.heading for section in _SECTIONS}
_HEAD: Final = """\
# Configuration

These are the keys of the configuration file. Any other key is an error. Paths are relative to the file.
`nats-bridge check -c FILE` reports mistakes with line and column.

Your editor completes keys if you save the output of `nats-bridge check --schema` as `schema.json`, and begin your file
with `# yaml-language-server: $schema=schema.json`.

Environment variables override the file. A variable's name consists of `BRIDGE_` and the keys in capitals, with two
underscores between levels. Lists and mappings are JSON. Examples are `BRIDGE_HTTP__LISTEN=:8322` and
`BRIDGE_CONNECTIONS__DEFAULT__SERVERS='["nats://127.0.0.1:4222"]'`. With `BRIDGE_SECRETS_DIR=/run/secrets`, a file in
this folder can replace the variable of the same name.
"""


def page() -> str:
    """The page's text."""
    schema = configuration_schema()
    models = {"": schema, **schema["$defs"]}
    inlined = {name for name, model in models.items() if name and "properties" not in model}
    rules = [section.model for section in _SECTIONS if section.model.endswith("Rule")]
    counted = Counter(row for model in rules for row in _rows(models[model], models))
    shared = [row for row, times in counted.items() if times > 2]
    untold = set(models) - inlined - set(_HEADINGS)
    if untold:
        raise ValueError(f"docs/reference/configuration.py says nothing of {', '.join(sorted(untold))}")
    parts = [_HEAD]
    for section in _SECTIONS:
        model = models.get(section.model, {})
        rows = [_KIND, *shared] if section.heading == _SHARED else _rows(model, models)
        parts.append(f"## {section.heading}\n")
        about = "" if section.obvious else model.get("description", "")
        parts += [f"{text}\n"] if (text := f"{about} {section.more}".strip()) else []
        if section.model in rules:
            several = [row[0] for row in rows if row in shared and row[0] != code("name")]
            listed = "all" if len(several) == len(shared) - 1 else ", ".join(several)
            parts += [f"[{_SHARED}](#{_anchor(_SHARED)}): {listed}.\n"] if several else []
            rows = [row for row in rows if row not in shared]
        parts.append(table(("key", "meaning", "type, default"), rows))
        if section.example:
            parts.append(fenced("yaml", section.example))
    return "\n".join(parts)


def _rows(model: dict[str, Any], models: dict[str, Any]) -> list[tuple[str, str, str]]:
    required = set(model.get("required", ()))
    # What has to be given comes first.
    fields = sorted(model["properties"].items(), key=lambda item: item[0] not in required)
    return [
        (code(key), field["description"], _type_and_default(field, models) + ", required" * (key in required))
        for key, field in fields
        if key != "kind"
    ]


def _type_and_default(field: dict[str, Any], models: dict[str, Any]) -> str:
    kind = _type(field, models)
    marked = kind.replace(one := code(str(field.get("default"))), f"{one} (default)", 1)
    return marked if marked != kind else kind + _default(field)


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if value in (None, "", []) or isinstance(value, dict):
        return ""
    return f", {code(json.dumps(value, ensure_ascii=False))}"


def _anchor(heading: str) -> str:
    return "".join(character for character in heading.lower().replace(" ", "-") if character not in ",.'`")


def _type(field: dict[str, Any], models: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        if name not in _HEADINGS:
            return _type(models[name], models)
        heading = _HEADINGS[name]
        return f"[{heading}](#{_anchor(heading)})"
    for several in ("anyOf", "oneOf"):
        if several in field:
            kinds = [_type(one, models) for one in field[several] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if "const" in field:
        return code(field["const"])
    if "enum" in field:
        return ", ".join(code(str(value)) for value in field["enum"])
    match field.get("type"):
        case "array" if "discriminator" in field["items"] or "oneOf" in field["items"]:
            return "list of rules"
        case "array":
            item = _type(field["items"], models)
            return "list of strings" if item == "string" else f"list of {item}"
        case "object" if isinstance(field.get("additionalProperties"), dict):
            value = _type(field["additionalProperties"], models)
            return "strings by name" if value == "string" else f"{value} by name"
        case "object":
            keys = ", ".join(f"{key}: {_type(value, models)}" for key, value in field["properties"].items())
            return f"{{{keys}}}"
        case "string":
            return "time" if field.get("format") == "date-time" else "string"
        case "number" | "integer" as kind:
            return f"{kind}{_bounds(field)}"
        case "boolean":
            return "boolean"
    raise ValueError(f"docs/reference/configuration.py knows no words for {field}")


def _bounds(field: dict[str, Any]) -> str:
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
    return "".join(f" {word} {field[key]:.15g}" for key, word in words.items() if key in field)
