"""The page on the configuration: every key, from the JSON schema."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from docs.reference.markdown import code, fenced, table
from nats_bridge.settings.schema import configuration_schema


@dataclass(frozen=True, slots=True)
class _Section:
    """A mapping of the configuration.

    Attributes:
        model: its name in the schema's definitions; empty for the whole file.
        heading: where it stands in the file.
        example: a configuration, or its `rules`, that shows it.
        more: a sentence with links, below its description.
    """

    model: str
    heading: str
    example: str = ""
    more: str = ""


_SHARED: Final = "Keys of several kinds"
_ORDERS: Final = 'republish: {src: "orders.>", dest: "monitor.orders.>"}'
_SECTIONS: Final = (
    _Section(
        "",
        "The file",
        'name: orders-bridge\nconnections:\n  default: {servers: ["nats://127.0.0.1:4222"]}\n'
        f"rules:\n  - name: monitor\n    kind: republish\n    stream: ORDERS\n    {_ORDERS}",
    ),
    _Section(
        "Connection",
        "A connection",
        'connections:\n  default: {servers: ["nats://127.0.0.1:4222"]}\n'
        '  west: {servers: ["tls://west.example.com:4222"], creds: secrets/west.creds}',
        "How to prove who the sidecar is, and what happens when a secret is replaced: [security](../security.md).",
    ),
    _Section(
        "Tls",
        "TLS of a connection",
        'connections:\n  default:\n    servers: ["tls://nats.example.com:4222"]\n'
        "    tls: {ca: secrets/ca.pem, cert: secrets/client.pem, key: secrets/client.key}",
        "See [security](../security.md#tls).",
    ),
    _Section(
        "Http",
        "http",
        'http: {listen: ":8322", hosts: ["bridge.example.com"], changes_from: nowhere}',
        "What it answers: [health and status](../health.md), [metrics](../telemetry.md).",
    ),
    _Section("Log", "log", "log: {format: json, level: warning}", "See [logs](../logs.md)."),
    _Section(
        "LeadershipSettings",
        "leadership",
        "leadership: {bucket: BRIDGE_LEASES, ttl: 5}",
        "See [replicas](../replicas.md). `leadership: {}` takes every default.",
    ),
    _Section("Reload", "reload", "reload: {watch: false}", "See [reload](../reload.md)."),
    _Section("Telemetry", "telemetry", "telemetry: {trace: link}", "See [telemetry](../telemetry.md#traces)."),
    _Section(_SHARED, _SHARED, "", "Of rules, as far as they make sense for the kind."),
    _Section(
        "RepublishRule",
        "Rule republish",
        "",
        "See [republish](../republish.md).",
    ),
    _Section("RepublishObject", "The object republish"),
    _Section(
        "SourcesRule",
        "Rule sources",
        "",
        "See [sources, mirrors, buckets](../copying.md).",
    ),
    _Section(
        "MirrorRule",
        "Rule mirror",
        "",
        "See [sources, mirrors, buckets](../copying.md#mirror-and-keep_sequence).",
    ),
    _Section("Source", "An entry of sources, or mirror"),
    _Section("SubjectTransform", "A subject transform"),
    _Section("External", "The object external"),
    _Section("HeaderEquals", "where"),
    _Section(
        "KvSourcesRule",
        "Rule kv_sources",
        "",
        "See [buckets](../buckets.md).",
    ),
    _Section("KvSource", "An entry of kv_sources"),
    _Section(
        "SubjectTransformRule",
        "Rule subject_transform",
        "",
        "See [a stream's ingress](../subject-transform.md).",
    ),
    _Section(
        "AdvisoriesRule",
        "Rule advisories",
        "",
        "See [advisories](../advisories.md).",
    ),
    _Section(
        "WatchRule",
        "Rule watch",
        "",
        "See [watch](../watch.md#as-a-rule-of-a-sidecar).",
    ),
    _Section(
        "RuleTest",
        "A test of a rule",
        f"rules: [{{name: monitor, kind: republish, stream: ORDERS, {_ORDERS}}}]\n"
        "tests:\n  - name: an order is republished\n    rule: monitor\n"
        "    given: {subject: orders.1}\n    expect: [{subject: monitor.orders.1}]",
        "See [tests of rules](../testing-rules.md).",
    ),
    _Section("GivenMessage", "given"),
    _Section("ExpectedMessage", "expect"),
)
_HEADINGS: Final = {section.model: section.heading for section in _SECTIONS}
_HEAD: Final = """\
# Configuration

Every key of the configuration file, from its JSON schema. This page is generated: `python -m docs.reference --write`.

`nats-bridge check --schema > schema.json` prints the schema. With `# yaml-language-server: $schema=schema.json` as the
first line of your file, editors complete keys and mark mistakes. `nats-bridge check -c FILE` prints mistakes with line
and column. A key that is not listed here is an error.

The environment wins over the file. A variable is `BRIDGE_` and the keys in capitals, with two underscores between
levels, as in `BRIDGE_HTTP__LISTEN=:8322`. Lists and mappings are JSON:
`BRIDGE_CONNECTIONS__DEFAULT__SERVERS='["nats://127.0.0.1:4222"]'`. With `BRIDGE_SECRETS_DIR=/run/secrets`, a file in
that folder with the name of a variable does the same. A variable wins over it.

Paths of files are relative to the configuration file.
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
        rows = shared if section.heading == _SHARED else _rows(model, models)
        parts.append(f"## {section.heading}\n")
        parts.append(f"{model.get('description', '')} {section.more}".strip() + "\n")
        if section.model in rules:
            several = ", ".join(row[0] for row in rows if row in shared)
            parts.append(f"Also {several}, as in [{_SHARED.lower()}](#{_anchor(_SHARED)}).\n")
            rows = [row for row in rows if row not in shared]
        parts.append(table(("key", "meaning", "type and default"), rows))
        if section.example:
            parts.append(fenced("yaml", section.example))
    return "\n".join(parts)


def _rows(model: dict[str, Any], models: dict[str, Any]) -> list[tuple[str, str, str]]:
    required = set(model.get("required", ()))
    # What has to be given comes first.
    fields = sorted(model["properties"].items(), key=lambda item: item[0] not in required)
    return [
        (code(key), field["description"], _type(field, models) + (", required" if key in required else _default(field)))
        for key, field in fields
    ]


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if value is None or value == [] or isinstance(value, dict):
        return ""
    return f", default {code(json.dumps(value, ensure_ascii=False))}"


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
            return " or ".join(dict.fromkeys(kinds)) if len(kinds) < 4 else ", ".join(kinds)
    if "const" in field:
        return code(field["const"])
    if "enum" in field:
        return ", ".join(code(str(value)) for value in field["enum"])
    match field.get("type"):
        case "array":
            item = _type(field["items"], models)
            return "list of strings" if item == "string" else f"list of {item}"
        case "object" if isinstance(field.get("additionalProperties"), dict):
            return f"mapping of a name to {_type(field['additionalProperties'], models)}"
        case "object":
            keys = ", ".join(f"{key}: {_type(value, models)}" for key, value in field["properties"].items())
            return f"{{{keys}}}"
        case "string":
            return {"path": "path of a file", "date-time": "time"}.get(field.get("format", ""), "string")
        case "number" | "integer" as kind:
            return {"number": "number", "integer": "integer"}[kind] + _bounds(field)
        case "boolean":
            return "boolean"
    raise ValueError(f"docs/reference/configuration.py knows no words for {field}")


def _bounds(field: dict[str, Any]) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
    bounds = [f"{word} {field[key]:g}" for key, word in words.items() if key in field]
    return f" ({', '.join(bounds)})" if bounds else ""
