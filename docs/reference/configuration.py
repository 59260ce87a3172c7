"""The page on the configuration: every key, from the JSON schema."""

from __future__ import annotations

import json
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
    _Section(
        "RepublishRule",
        "Rule republish",
        f"rules:\n  - name: orders-monitor\n    kind: republish\n    stream: ORDERS\n    {_ORDERS}\n"
        '    exclude: ["orders.test.>"]\n    start: {time: "2026-01-01T00:00:00Z"}\n    delivery: at_least_once',
        "See [republish](../republish.md).",
    ),
    _Section("RepublishObject", "The object republish"),
    _Section(
        "SourcesRule",
        "Rule sources",
        "rules:\n  - name: eu\n    kind: sources\n    stream: ORDERS_EU\n    sources:\n"
        '      - {name: ORDERS, subject_transforms: [{src: "orders.eu.*", dest: "eu.{{wildcard(1)}}"}]}\n'
        '    on_rejected: {skip: "rejected.eu"}',
        "See [sources, mirrors, buckets](../copying.md).",
    ),
    _Section(
        "MirrorRule",
        "Rule mirror",
        "rules:\n  - name: copy\n    kind: mirror\n    stream: ORDERS_COPY\n"
        '    mirror: {name: ORDERS, subject_transforms: [{src: "orders.>", dest: "copy.orders.>"}]}\n'
        "    keep_sequence: true\n    filler_subject: copy.gap",
        "See [sources, mirrors, buckets](../copying.md#mirror-and-keep_sequence).",
    ),
    _Section("Source", "An entry of sources, or mirror"),
    _Section("SubjectTransform", "A subject transform"),
    _Section("External", "The object external"),
    _Section("HeaderEquals", "where"),
    _Section(
        "KvSourcesRule",
        "Rule kv_sources",
        "rules:\n  - name: settings\n    kind: kv_sources\n    bucket: SETTINGS_EU\n    sources:\n"
        '      - {bucket: SETTINGS, exclude: ["secret.>"]}\n'
        '      - {bucket: LIMITS, key_transforms: [{src: "eu.>", dest: "limits.>"}]}',
        "See [buckets](../buckets.md).",
    ),
    _Section("KvSource", "An entry of kv_sources"),
    _Section(
        "SubjectTransformRule",
        "Rule subject_transform",
        "rules:\n  - name: partition-in\n    kind: subject_transform\n    stream: EVENTS\n"
        '    subject_transform: {src: "events.*", dest: "events.{{partition(8,1)}}.{{wildcard(1)}}"}',
        "See [a stream's ingress](../subject-transform.md).",
    ),
    _Section(
        "AdvisoriesRule",
        "Rule advisories",
        "rules:\n  - name: dead-letters\n    kind: advisories\n    republish:\n"
        '      src: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*"\n'
        '      dest: "dlq.{{wildcard(1)}}.{{wildcard(2)}}"\n    attach_message: true',
        "See [advisories](../advisories.md).",
    ),
    _Section(
        "WatchRule",
        "Rule watch",
        'rules:\n  - {name: mirrors, kind: watch, streams: ["*"], stalled_after: 30, on_stall: step_down}',
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

`nats-bridge check --schema > schema.json` prints the schema; with `# yaml-language-server: $schema=schema.json` as a
file's first line, editors complete keys and mark mistakes. `nats-bridge check -c FILE` says what is wrong with a file,
with line and column. A key that is not listed here is an error.

Every value can be given by the environment, which wins over the file: `BRIDGE_`, then the keys in capitals with two
underscores between levels, as in `BRIDGE_HTTP__LISTEN=:8322`. Lists and mappings are JSON:
`BRIDGE_CONNECTIONS__DEFAULT__SERVERS='["nats://127.0.0.1:4222"]'`. With `BRIDGE_SECRETS_DIR=/run/secrets` a file of
such a name there does the same; a variable wins over it.

Paths of files are relative to the configuration file.
"""


def page() -> str:
    """The page's text."""
    schema = configuration_schema()
    models = {"": schema, **schema["$defs"]}
    inlined = {name for name, model in models.items() if name and "properties" not in model}
    untold = set(models) - inlined - set(_HEADINGS)
    if untold:
        raise ValueError(f"docs/reference/configuration.py says nothing of {', '.join(sorted(untold))}")
    parts = [_HEAD]
    for section in _SECTIONS:
        model = models[section.model]
        reported = model.get("description", "")
        parts.append(f"## {section.heading}\n")
        parts.append(f"{reported} {section.more}".strip() + "\n")
        parts.append(table(("key", "meaning", "type", "default"), _rows(model, models)))
        if section.example:
            parts.append(fenced("yaml", section.example))
    return "\n".join(parts)


def _rows(model: dict[str, Any], models: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    required = set(model.get("required", ()))
    found = []
    for key, field in model["properties"].items():
        default = "required" if key in required else _default(field)
        found.append((code(key), field["description"], _type(field, models), default))
    # What has to be given comes first.
    return sorted(found, key=lambda row: row[3] != "required")


def _default(field: dict[str, Any]) -> str:
    if "default" not in field:
        return "none"
    value = field["default"]
    if value is None or value == []:
        return "none"
    if isinstance(value, dict):
        return "its defaults"
    return code(json.dumps(value, ensure_ascii=False))


def _type(field: dict[str, Any], models: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        if name not in _HEADINGS:
            return _type(models[name], models)
        heading = _HEADINGS[name]
        anchor = "".join(character for character in heading.lower().replace(" ", "-") if character not in ",.'`")
        return f"[{heading}](#{anchor})"
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
            return f"list of {_type(field['items'], models)}"
        case "object" if isinstance(field.get("additionalProperties"), dict):
            return f"mapping of a name to {_type(field['additionalProperties'], models)}"
        case "object":
            keys = ", ".join(f"{key}: {_type(value, models)}" for key, value in field["properties"].items())
            return f"{{{keys}}}"
        case "string":
            return {"path": "path of a file", "date-time": "time"}.get(field.get("format", ""), "text")
        case "number" | "integer" as kind:
            return {"number": "number", "integer": "whole number"}[kind] + _bounds(field)
        case "boolean":
            return "`true` or `false`"
    raise ValueError(f"docs/reference/configuration.py knows no words for {field}")


def _bounds(field: dict[str, Any]) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
    bounds = [f"{word} {field[key]:g}" for key, word in words.items() if key in field]
    return f" ({', '.join(bounds)})" if bounds else ""
