"""What runs: the streams, the rules under test, and what each of them promises.

The destinations are computed here by hand, not by the engine under test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["BUCKET", "BUCKET_COPY", "HISTORY", "QUEUES", "RULES", "STREAMS", "RuleUnderTest", "chosen", "configuration"]

Promise: TypeAlias = Literal["at_most_once", "at_least_once", "exactly_once", "acknowledged", "heard"]
"""What a rule promises: `acknowledged`, that an acknowledged message is stored once; `heard`, that a received
advisory is stored once."""

BUCKET = "KV_SETTINGS"
BUCKET_COPY = "KV_SETTINGS_COPY"
HISTORY = 20
"""How many messages of each key the buckets keep."""

STREAMS: dict[str, dict[str, Any]] = {
    "ORDERS": {"subjects": ["orders.>"]},
    "LEGACY": {"subjects": ["legacy.>"]},
    "GATHERED": {"subjects": ["gathered.>"]},
    "COPY": {"subjects": ["copy.>"]},
    "TWIN": {"subjects": ["twin.>"]},
    "EVENTS": {"subjects": ["stored.>"]},
    "JOBS": {"subjects": ["jobs.>"]},
    "TASKS": {"subjects": ["tasks.>"], "retention": "workqueue"},
    "TAKEN": {"subjects": ["taken.>"]},
    "DEAD": {"subjects": ["dead.>"]},
    BUCKET: {"subjects": ["$KV.SETTINGS.>"], "max_msgs_per_subject": HISTORY, "allow_rollup_hdrs": True},
    BUCKET_COPY: {"subjects": ["$KV.SETTINGS_COPY.>"], "max_msgs_per_subject": HISTORY, "allow_rollup_hdrs": True},
}
"""All streams of the servers under test, with their configuration except name and replicas."""

QUEUES = frozenset(name for name, config in STREAMS.items() if config.get("retention") == "workqueue")
"""Those that hold nothing any more when all is copied."""


@dataclass(frozen=True, slots=True)
class RuleUnderTest:
    """A rule, and its promise.

    Attributes:
        name: the rule's name.
        promise: what it promises.
        sources: the streams that it reads; for an ingress rule, what publishers publish to.
        target: the stream that it writes to; empty where subscribers receive its messages.
        document: the rule as in the configuration.
        destination: from the subject of an original to that of its copy.
    """

    name: str
    promise: Promise
    sources: tuple[str, ...]
    target: str
    document: Mapping[str, Any]
    destination: Callable[[str], str]

    @property
    def kind(self) -> str:
        """The rule's kind."""
        return str(self.document["kind"])


def _swapped(prefix: str) -> Callable[[str], str]:
    """`orders.eu.9` becomes `<prefix>.9.eu`."""

    def destination(subject: str) -> str:
        _, region, number = subject.split(".")
        return f"{prefix}.{number}.{region}"

    return destination


def _prefixed(old: str, new: str) -> Callable[[str], str]:
    return lambda subject: new + subject.removeprefix(old)


def _gathered(subject: str) -> str:
    if subject.startswith("orders."):
        return _swapped("gathered.orders")(subject)
    return "gathered." + subject


def _republish(name: str, delivery: Promise) -> RuleUnderTest:
    return RuleUnderTest(
        name,
        delivery,
        ("ORDERS",),
        "",
        {
            "kind": "republish",
            "stream": "ORDERS",
            "republish": {"src": "orders.*.*", "dest": name + ".{{wildcard(2)}}.{{wildcard(1)}}"},
            "to": "witness",
            "start": "first",
            "delivery": delivery,
        },
        _swapped(name),
    )


RULES: tuple[RuleUnderTest, ...] = (
    _republish("once", "at_most_once"),
    _republish("never-lost", "at_least_once"),
    RuleUnderTest(
        "gathered",
        "exactly_once",
        ("ORDERS", "LEGACY"),
        "GATHERED",
        {
            "kind": "sources",
            "stream": "GATHERED",
            "sources": [
                {
                    "name": "ORDERS",
                    "subject_transforms": [
                        {"src": "orders.*.*", "dest": "gathered.orders.{{wildcard(2)}}.{{wildcard(1)}}"}
                    ],
                },
                {"name": "LEGACY", "subject_transforms": [{"src": "legacy.>", "dest": "gathered.legacy.>"}]},
            ],
        },
        _gathered,
    ),
    RuleUnderTest(
        "copy",
        "exactly_once",
        ("ORDERS",),
        "COPY",
        {
            "kind": "mirror",
            "stream": "COPY",
            "mirror": {"name": "ORDERS", "subject_transforms": [{"src": "orders.>", "dest": "copy.>"}]},
        },
        _prefixed("orders.", "copy."),
    ),
    RuleUnderTest(
        "twin",
        "exactly_once",
        ("LEGACY",),
        "TWIN",
        {
            "kind": "mirror",
            "stream": "TWIN",
            "mirror": {"name": "LEGACY", "subject_transforms": [{"src": "legacy.>", "dest": "twin.at.>"}]},
            "keep_sequence": True,
            "filler_subject": "twin.gap",
        },
        _prefixed("legacy.", "twin.at."),
    ),
    RuleUnderTest(
        "taken",
        "exactly_once",
        ("TASKS",),
        "TAKEN",
        {
            "kind": "sources",
            "stream": "TAKEN",
            "sources": [
                {
                    "name": "TASKS",
                    "subject_transforms": [{"src": "tasks.>", "dest": "taken.>"}],
                    "acknowledge": True,
                }
            ],
        },
        _prefixed("tasks.", "taken."),
    ),
    RuleUnderTest(
        "settings",
        "exactly_once",
        (BUCKET,),
        BUCKET_COPY,
        {"kind": "kv_sources", "bucket": "SETTINGS_COPY", "sources": [{"bucket": "SETTINGS"}]},
        _prefixed("$KV.SETTINGS.", "$KV.SETTINGS_COPY."),
    ),
    RuleUnderTest(
        "events",
        "acknowledged",
        ("events",),
        "EVENTS",
        {
            "kind": "subject_transform",
            "stream": "EVENTS",
            "subject_transform": {"src": "events.*.*", "dest": "stored.{{wildcard(2)}}.{{wildcard(1)}}"},
        },
        _swapped("stored"),
    ),
    RuleUnderTest(
        "dead-letters",
        "heard",
        ("JOBS",),
        "DEAD",
        {
            "kind": "advisories",
            "republish": {
                "src": "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.*.*",
                "dest": "dead.{{wildcard(1)}}.{{wildcard(2)}}",
            },
            "attach_message": True,
        },
        lambda _: "dead.JOBS.workers",
    ),
)
"""Every kind of rule; republish in both modes, a mirror with and without the source's sequence numbers."""


def chosen(names: str) -> tuple[RuleUnderTest, ...]:
    """Rules by names or kinds, with commas between them; `all` for all.

    Raises:
        ValueError: there is none of that name.
    """
    if names == "all":
        return RULES
    wanted = {name.strip() for name in names.split(",")}
    found = tuple(rule for rule in RULES if {rule.name, rule.kind, rule.document.get("delivery")} & wanted)
    known = {name for rule in found for name in (rule.name, rule.kind, rule.document.get("delivery"))}
    if unknown := wanted - known:
        names = ", ".join(f"{rule.name} ({rule.kind})" for rule in RULES)
        raise ValueError(f"--rules: no rule {sorted(unknown)}; there are {names}")
    return found


def configuration(
    rules: tuple[RuleUnderTest, ...], servers: list[str], witness: str, http_port: int, *, replicas: int, edited: bool
) -> dict[str, Any]:
    """The sidecar's configuration.

    Args:
        rules: the rules under test.
        servers: addresses of the servers under test.
        witness: address of the server on which subscribers receive republished messages.
        http_port: where the sidecar answers.
        replicas: how many sidecars run; more than one share the rules by leases.
        edited: with one more rule, the difference of a reload.
    """
    documents = [{"name": rule.name, **rule.document} for rule in rules]
    if edited:
        documents.append(
            {
                "name": "extra",
                "kind": "republish",
                "stream": "ORDERS",
                "republish": {"src": "orders.*.*", "dest": "extra.$1.$2", "headers_only": True},
                "to": "witness",
            }
        )
    document: dict[str, Any] = {
        "name": "chaos",
        "connections": {"default": {"servers": servers}, "witness": {"servers": [witness]}},
        "http": {"listen": f"127.0.0.1:{http_port}"},
        "log": {"format": "json"},
        "dialect": "2.15",
        "rules": documents,
    }
    if replicas > 1:
        document["leadership"] = {"connection": "default"}
    return document
