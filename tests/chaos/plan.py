"""The streams and the rules under test, each with its promise.

The destinations are computed here by hand, not by the engine under test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from nats_transforms.dialect import dialect
from nats_transforms.stream_config.schema import fields_of, stream_request

Promise: TypeAlias = Literal["at_most_once", "at_least_once", "exactly_once", "acknowledged", "received"]
"""What a rule promises: `acknowledged`, that an acknowledged message is stored once; `received`, that a received
advisory is stored once."""

BUCKET = "KV_SETTINGS"
BUCKET_COPY = "KV_SETTINGS_COPY"
HISTORY = 20
"""How many messages of each key the buckets keep."""

EXPIRY = 3 * 10**9
"""Nanoseconds after which leases expire when the run lets them, and as long again until their delete markers would."""

# Delete markers of leases outlast every run.
_PASSING = {"allow_msg_ttl": True, "subject_delete_marker_ttl": 10**9}
_LEASED = {**_PASSING, "duplicate_window": EXPIRY, "subject_delete_marker_ttl": 72 * 3600 * 10**9}
_SCHEDULED = {"allow_msg_schedules": True, "allow_msg_ttl": True, "allow_rollup_hdrs": True}

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
    "CLICKS": {"subjects": ["clicks.>"], "allow_msg_counter": True},
    "VIEWS": {"subjects": ["views.>"], "allow_msg_counter": True},
    "SUMS": {"subjects": ["sums.>"], "allow_msg_counter": True},
    "PLANS": {"subjects": ["plans.>"], **_SCHEDULED},
    "AGENDA": {"subjects": ["agenda.>"], **_SCHEDULED},
    "LEASES": {"subjects": ["leases.>"], **_LEASED},
    "HELD": {"subjects": ["held.>"], "allow_msg_ttl": True, "allow_rollup_hdrs": True},
    "PASSES": {"subjects": ["passes.>"], **_PASSING},
    "PASSED": {"subjects": ["passed.>"], **_PASSING},
    "SCRATCH": {"subjects": ["scratch.>"], "storage": "memory", "num_replicas": 1},
    "SCRATCHED": {"subjects": ["scratched.>"]},
    BUCKET: {"subjects": ["$KV.SETTINGS.>"], "max_msgs_per_subject": HISTORY, "allow_rollup_hdrs": True},
    BUCKET_COPY: {"subjects": ["$KV.SETTINGS_COPY.>"], "max_msgs_per_subject": HISTORY, "allow_rollup_hdrs": True},
}
"""All streams of the servers under test, with their configuration except name and replicas."""

QUEUES = frozenset(name for name, config in STREAMS.items() if config.get("retention") == "workqueue")
"""Those that hold nothing any more when all is copied."""

SCHEDULED = frozenset(name for name, config in STREAMS.items() if "allow_msg_schedules" in config)
EXPIRING = frozenset(name for name, config in STREAMS.items() if "allow_msg_ttl" in config) - SCHEDULED
"""Those from which the server removes, or to which it writes: fired schedules, expired messages, delete markers."""


IN_MEMORY = frozenset(name for name, config in STREAMS.items() if config.get("storage") == "memory")
"""Those that begin again, empty, whenever their server restarts; see `chaos.beginning_again`."""

LEASED = "LEASES"
"""The one whose messages expire together, each time when they are copied; see `chaos.expiring`."""


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


def _republish(name: str, delivery: Promise, stream: str = "ORDERS") -> RuleUnderTest:
    return RuleUnderTest(
        name,
        delivery,
        (stream,),
        "",
        {
            "kind": "republish",
            "stream": stream,
            "republish": {"src": f"{stream.lower()}.*.*", "dest": name + ".{{wildcard(2)}}.{{wildcard(1)}}"},
            "to": "witness",
            "start": "first",
            "delivery": delivery,
        },
        _swapped(name),
    )


def _sources(name: str, target: str, *entries: tuple[str, str, str], **more: Any) -> RuleUnderTest:
    """A `sources` rule, by source and the beginnings of its subjects before and after; `more` is in each entry."""

    def destination(subject: str) -> str:
        (renamed,) = (new + subject.removeprefix(old) for _, old, new in entries if subject.startswith(old))
        return renamed

    sources = [
        {"name": source, "subject_transforms": [{"src": f"{old}>", "dest": f"{new}>"}], **more}
        for source, old, new in entries
    ]
    document = {"kind": "sources", "stream": target, "sources": sources}
    return RuleUnderTest(name, "exactly_once", tuple(source for source, _, _ in entries), target, document, destination)


def _mirror(name: str, target: str, entry: tuple[str, str, str], **more: Any) -> RuleUnderTest:
    """A `mirror` rule, as `_sources`; `more` is in the rule."""
    copied = _sources(name, target, entry)
    (mirror,) = copied.document["sources"]
    return replace(copied, document={"kind": "mirror", "stream": target, "mirror": mirror, **more})


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
    _mirror("copy", "COPY", ("ORDERS", "orders.", "copy.")),
    _mirror("twin", "TWIN", ("LEGACY", "legacy.", "twin.at."), keep_sequence=True, filler_subject="twin.gap"),
    _sources("taken", "TAKEN", ("TASKS", "tasks.", "taken."), acknowledge=True),
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
        "received",
        ("JOBS",),
        "DEAD",
        {
            "kind": "advisories",
            "republish": {
                "src": "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.JOBS.*",
                "dest": "dead.JOBS.{{wildcard(1)}}",
            },
            "attach_message": True,
        },
        lambda _: "dead.JOBS.workers",
    ),
    _sources("sums", "SUMS", ("CLICKS", "clicks.", "sums."), ("VIEWS", "views.", "sums.")),
    _sources("agenda", "AGENDA", ("PLANS", "plans.", "agenda.")),
    _sources("held", "HELD", ("LEASES", "leases.", "held.")),
    _sources("passed", "PASSED", ("PASSES", "passes.", "passed.")),
    _republish("echo", "at_least_once", "SCRATCH"),
    _mirror("saved", "SCRATCHED", ("SCRATCH", "scratch.", "scratched."), on_recreated="restart"),
)
"""Every kind of rule; republish in both modes, a mirror with and without the source's sequence numbers; copies of a
work queue, of counters, of schedules with what they fire, of delete markers, and of messages with a TTL; both ways out
of a stream in memory."""


def streams_of(version: str) -> dict[str, dict[str, Any]]:
    """The streams that a version can have: without members that it does not know."""
    known = fields_of(stream_request(), dialect(version)).keys()
    return {name: config for name, config in STREAMS.items() if config.keys() <= known}


def chosen(names: str, version: str = "2.15") -> tuple[RuleUnderTest, ...]:
    """Rules by names or kinds, with commas between them; `all` for all whose streams a version can have.

    Raises:
        ValueError: there is none of that name.
    """
    if names == "all":
        there = streams_of(version).keys() | {""}
        return tuple(rule for rule in RULES if rule.target in there)
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


def simulated(rules: tuple[RuleUnderTest, ...], *, replicas: int, is_split: bool) -> dict[str, Any]:
    """The configuration of a simulated sidecar; `is_split`: targets are on another server than sources."""
    document = configuration(rules, ["nats://nats:4222"], "nats://witness:4222", 0, replicas=replicas, edited=False)
    document["http"] = {"listen": ""}
    del document["log"]
    if is_split and any(rule.target for rule in rules):
        document["connections"]["other"] = {"servers": ["nats://other:4222"]}
        document["rules"] = [rule | ({} if "to" in rule else {"to": "other"}) for rule in document["rules"]]
    if all(rule.kind != "republish" for rule in rules):
        del document["connections"]["witness"]
    return document
