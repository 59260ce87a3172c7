"""The page on what 2.11 to 2.15 added to streams: what native does, what the bridge does, which cases show it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.reference.markdown import code, table
from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.server_features import SERVER_FEATURES, ServerFeature

_ROOT: Final = Path(__file__).parents[2]
_DIVERGENCES: Final = _ROOT / "docs" / "known-divergences.md"
_HEAD: Final = """\
# What 2.11 to 2.15 added to streams

This page is generated: `python -m docs.reference --write`.

What native does with each new thing in republish, sources, mirrors and buckets, and what a rule does in its place.
*The same* means equal to the byte. Each row names the cases or tests that show it: `nats-conform run --select ID
--versions V,V` plays a case again, `nats-conform list ID` shows its title. Ids that begin with `kd/` are
explained in [known divergences](known-divergences.md). *Versions* lists what changed, from the same cases;
[versions](versions.md) has every change of the suite, and `nats-conform stream.json --versions
2.10,2.15` those of a stream of yours.

## For all of them
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a feature's table.

    Attributes:
        where: which part of the server, or kind of rule.
        native: what servers do that have the feature.
        ours: what a rule does.
        shown_by: ids of cases.
        divergences: ids of known divergences.
    """

    where: str
    native: str
    ours: str
    shown_by: tuple[str, ...]
    divergences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that a server version added.

    Attributes:
        title: which one of `nats_conformance.server_features`.
        families: how the ids of its own cases begin.
        rows: what happens to it where.
    """

    title: str
    families: tuple[str, ...]
    rows: tuple[Row, ...]


_SAME: Final = "the same"
_KEPT: Final = "kept"

_STREAM_CONFIGS: Final = "tests/live/test_stream_configs_against_servers.py::test_servers_answer_as_recorded"
_SPARK: Final = "tests/spark/test_server_features.py"

FOR_ALL: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "`explain`",
        "no feature changes what a subject becomes",
        ("adr43/messages/ingress/1", "adr49/messages/renamed/1", "adr50/messages/ingress/1"),
    ),
    (
        "`check`",
        "accepts, refuses and completes a configuration as servers of the dialect do, also `--previous`",
        (_STREAM_CONFIGS, "tests/unit/test_cli_validate.py::test_an_update_of_a_configuration"),
    ),
    (
        "`check --server`",
        "prints a remark for counters, schedules and object stores, whose copies differ; the rule runs",
        (
            "tests/live/test_copying_counters.py::test_check_says_what_will_be_otherwise",
            "tests/live/test_server_features.py::test_check_says_which_copies_differ",
        ),
    ),
    (
        "advisories",
        "a rule takes new ones as well; headers that would act in a dead letter have names of ours",
        ("tests/live/test_server_features.py::test_a_dead_letter_holds_the_message_and_nothing_acts_in_it",),
    ),
    (
        "Spark, read",
        "a row for each stored message, markers and schedules included, headers as stored",
        (f"{_SPARK}::test_a_row_for_each_stored_message_with_its_headers",),
    ),
    (
        "Spark, write",
        "a row is published; the stream decides, as for any publisher, and a refusal fails the job",
        (f"{_SPARK}::test_a_row_is_published_and_the_stream_decides",),
    ),
    ("`backfill`", "what the rule makes of a message", (f"{_SPARK}::test_a_backfill_makes_the_copies_of_the_sidecar",)),
    (
        "`diff`",
        "headers of counters and schedules equal ours in a copy, unless `--as exact`",
        (
            "tests/spark/test_diff_messages.py"
            "::test_headers_of_counters_and_schedules_are_equal_to_those_of_a_native_copy",
            "tests/spark/test_diff_messages.py::test_what_a_counter_has_of_its_sources_is_not_compared",
        ),
    ),
)
"""What is the same for every feature: where, what happens, and the cases and tests that show it."""

FEATURES: Final[tuple[Feature, ...]] = (
    Feature(
        "Message TTLs",
        ("adr43/configuration/ttl", "adr43/messages", "adr43/expiry"),
        (
            Row(
                "republish",
                "kept; raised to the marker's time",
                _SAME,
                ("adr28/headers/known/6", "adr28/headers/known/9"),
            ),
            Row(
                "republish",
                "an expired predecessor is none",
                "may be named",
                ("adr28/expiry/message-ttl/1",),
                ("kd/last-sequence/expiry",),
            ),
            Row(
                "sources",
                "kept; ends the copy where the target allows TTLs",
                "the same; taken out where the target allows none",
                ("adr36/headers/ttl/1", "adr36/headers/ttl/3", "adr43/expiry/copy/1"),
                ("kd/copy/withheld",),
            ),
            Row(
                "mirror",
                "kept; ends the copy where the target allows TTLs",
                "the same; taken out where the target allows none",
                ("adr36/headers/ttl/2", "adr36/headers/ttl/4", "adr43/messages/copies/1"),
                ("kd/copy/withheld",),
            ),
            Row("ingress", _KEPT, _SAME, ("adr43/messages/ingress/1",)),
        ),
    ),
    Feature(
        "Delete markers",
        ("adr43/configuration/marker", "adr43/marker"),
        (
            Row(
                "republish",
                "the marker is republished when it is stored",
                "the same; its last sequence may differ",
                ("adr28/expiry/delete-marker/1",),
                ("kd/last-sequence/expiry",),
            ),
            Row(
                "sources, mirror",
                "the marker is copied, and rolls up its subject",
                "the same; no rollup where the target allows none",
                ("adr43/marker/copies/1",),
                ("kd/copy/withheld",),
            ),
            Row(
                "mirror",
                "has no markers of its own",
                "an ordinary stream, which may have some",
                ("adr43/configuration/marker/6",),
                ("kd/copy/mirror-is-a-stream",),
            ),
        ),
    ),
    Feature(
        "Limit markers of buckets",
        ("adr48",),
        (
            Row("republish", "a key's TTL is kept", _SAME, ("adr28/kv/ttl/1",)),
            Row("buckets", "a purge keeps its TTL under the new key", _SAME, ("adr48/copies/purge/1",)),
            Row("buckets", "the marker rolls up its key", _SAME, ("adr48/marker/key/1",)),
        ),
    ),
    Feature(
        "Counters",
        ("adr49",),
        (
            Row("republish", "the new total, with the increment", _SAME, ("adr28/ingested/counter/1",)),
            Row(
                "sources",
                "into an ordinary stream: totals, as stored",
                "totals; the increment under a name of ours",
                ("adr49/copies/plain/1",),
                ("kd/copy/renamed",),
            ),
            Row(
                "sources",
                "into a counter stream: several sources add up",
                "the same sums; the record under a name of ours",
                ("adr49/copies/sum/1",),
                ("kd/copy/counter-record", "kd/copy/counter-forgotten", "kd/copy/counter-race"),
            ),
            Row(
                "mirror",
                "totals, as stored; counts nothing",
                "totals; the increment under a name of ours",
                ("adr49/copies/mirror/1", "adr49/configuration/counter/6"),
                ("kd/copy/renamed",),
            ),
            Row("ingress", "the counter is that of the new subject", _SAME, ("adr49/messages/renamed/1",)),
        ),
    ),
    Feature(
        "Atomic and fast batches",
        ("adr50",),
        (
            Row("republish", "at the commit, with the batch's headers", _SAME, ("adr28/ingested/atomic-batch/1",)),
            Row("republish", "fast: each message when it is stored", _SAME, ("adr50/messages/fast/1",)),
            Row(
                "sources, mirror",
                "the batch's headers are taken out",
                _SAME,
                ("adr36/headers/batch/1", "adr36/headers/batch/2"),
                ("kd/copy/withheld",),
            ),
            Row(
                "mirror",
                "takes none",
                "an ordinary stream",
                ("adr36/mirror-validation/batch/1",),
                ("kd/copy/mirror-is-a-stream",),
            ),
            Row(
                "ingress",
                "subjects change at the commit",
                "the same, with one replica",
                ("adr50/messages/ingress/1",),
                ("kd/ingress/order",),
            ),
        ),
    ),
    Feature(
        "Schedules",
        ("adr51",),
        (
            Row("republish", "the schedule, and what it fires", _SAME, ("adr28/ingested/schedule/1",)),
            Row(
                "sources, mirror",
                "2.12 stalls; since 2.14 copied, does not act",
                "copied under names of ours, does not act",
                ("adr51/copies/source/1", "adr51/copies/mirror/1", "adr51/copies/fired/1"),
                ("kd/copy/renamed", "kd/copy/stalls"),
            ),
            Row(
                "sources, mirror",
                "the target has no schedules of its own",
                "an ordinary stream, which may have some",
                ("adr51/configuration/schedules/3", "adr51/configuration/schedules/4"),
                ("kd/copy/mirror-is-a-stream",),
            ),
        ),
    ),
    Feature(
        "Asynchronous persistence",
        ("native/persistence",),
        (
            Row("republish", "as of other streams", _SAME, ("native/persistence/republish/1",)),
            Row(
                "sources, mirror",
                "as of other streams",
                _SAME,
                ("native/persistence/copies/1", "native/persistence/async/5"),
            ),
        ),
    ),
    Feature(
        "Promoting a mirror",
        ("adr36/mirror/promotion",),
        (
            Row(
                "mirror",
                "an update takes `mirror` away; sequences continue",
                "remove the rule: the target is a stream already",
                ("adr36/mirror/promotion/1",),
                ("kd/copy/mirror-is-a-stream",),
            ),
        ),
    ),
    Feature(
        "First sequence",
        ("native/first-sequence", "adr36/configuration/first-seq"),
        (
            Row("republish", "`Nats-Sequence` begins there", _SAME, ("adr28/headers/sequence/4",)),
            Row(
                "sources",
                "the record has the source's numbers",
                _SAME,
                ("native/first-sequence/copies/1", "native/first-sequence/target/1"),
            ),
            Row(
                "mirror",
                "begins where its source does",
                "with `keep_sequence`",
                ("adr36/mirror/first-seq/1",),
                ("kd/copy/time-and-sequence",),
            ),
        ),
    ),
    Feature(
        "Pausing a consumer",
        ("native/consumers/pause",),
        (
            Row(
                "republish",
                "no consumer, so nothing to pause",
                "waits while a client pauses the rule's consumer",
                ("native/consumers/pause/1",),
                ("kd/messages/paused",),
            ),
        ),
    ),
    Feature(
        "Priority groups",
        ("native/consumers/priority",),
        (
            Row(
                "republish",
                "no consumer",
                "a watching consumer is accepted next to a group; on a work queue it needs `allow_side_effects`",
                ("native/consumers/priority/2",),
                ("kd/refused/side-effects",),
            ),
        ),
    ),
    Feature(
        "Sources of work queues",
        ("adr60",),
        (
            Row(
                "sources",
                "before 2.14 the queue has removed a lost message; then a durable consumer",
                "with `acknowledge`, nothing is lost: [work queues](work-queues.md)",
                ("adr36/copies/work-queue/1", "adr36/copies/interest/1", "adr60/consumer/visible/1"),
            ),
        ),
    ),
    Feature(
        "Identity of sources",
        ("native/record",),
        (
            Row(
                "sources",
                "the record names the source by an identity, too",
                "under `Nats-Bridge-Source`, without it",
                ("adr36/source-record/plain/1", "native/record/identity/1"),
                ("kd/copy/record-name", "kd/copy/identity"),
            ),
            Row(
                "sources",
                "a recreated source is copied from its beginning",
                "the rule stops, or begins again: `on_recreated`",
                ("adr36/restart/recreated-source/1",),
                ("kd/copy/recreated",),
            ),
            Row(
                "any stream",
                "refuses a record from a client",
                "never sends one there",
                ("native/ingest/source-record/1",),
            ),
        ),
    ),
)
"""In the order of the page."""


def page() -> str:
    """The page's text."""
    cases = {case.id: case for case in read_catalogue()}
    known = set(re.findall(r"^\| `(kd/[^`]+)`", _DIVERGENCES.read_text("utf-8"), re.MULTILINE))
    parts = [_HEAD]
    shared = ((where, what, ", ".join(_shown(each, cases) for each in by)) for where, what, by in FOR_ALL)
    parts.append(table(("where", "what happens", "shown by"), shared))
    for feature in FEATURES:
        parts.append(f"## {feature.title}\n")
        parts.append(_history(SERVER_FEATURES[feature.title]))
        parts.append(
            table(("where", "native", "nats-bridge", "shown by"), (_cells(row, cases, known) for row in feature.rows))
        )
        if changed := list(_changes(feature, cases)):
            parts += ["Versions:\n", "\n".join(f"- {each}" for each in changed) + "\n"]
        own = [case for case in cases.values() if _is_of(case, feature)]
        parts.append(f"Cases: {', '.join(f'{code(each)}' for each in feature.families)} ({len(own)}).\n")
    return "\n".join(parts)


def _history(added: ServerFeature) -> str:
    """Since when, with the names that came with it, and what later lines added."""
    names = f": {', '.join(map(code, added.names))}" if added.names else ""
    later = "".join(f" Since {line}: {what}." for line, what in added.later)
    return f"Since {added.since}{names}.{later}\n"


def _shown(by: str, cases: dict[str, Case]) -> str:
    """A case by its id, a test by its name below its file."""
    file, is_test, name = by.partition("::")
    if not is_test:
        if by not in cases:
            raise ValueError(f"docs/reference/server_features.py: nothing is called {by}")
        return code(by)
    if f"def {name}(" not in (_ROOT / file).read_text("utf-8"):
        raise ValueError(f"docs/reference/server_features.py: no test is called {by}")
    return f"{code(name)} in {code(file)}"


def _cells(row: Row, cases: dict[str, Case], known: set[str]) -> tuple[str, ...]:
    unknown = [each for each in row.shown_by if each not in cases] + [
        each for each in row.divergences if each not in known
    ]
    if unknown:
        raise ValueError(f"docs/reference/server_features.py: nothing is called {', '.join(unknown)}")
    return row.where, row.native, row.ours, ", ".join(map(code, (*row.shown_by, *row.divergences)))


def _is_of(case: Case, feature: Feature) -> bool:
    return any(case.id.startswith(f"{family}/") for family in feature.families)


def _changes(feature: Feature, cases: dict[str, Case]) -> Iterator[str]:
    """What versions do otherwise, each once, with the first case that shows it."""
    shown: set[str] = set()
    for case in cases.values():
        for difference in case.differences if _is_of(case, feature) else ():
            if difference.reason not in shown:
                shown.add(difference.reason)
                yield f"{difference.reason} ({code(case.id)})"
