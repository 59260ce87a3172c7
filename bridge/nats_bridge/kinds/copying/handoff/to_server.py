"""Hands over rules of kind sources and kv_sources.

Theory of operation: an entry resumes natively at the right message in one of three ways.

* *records*: the server's own search in the target finds the bridge's newest copy, whose record it can read;
* *start*: that search finds no copy of the entry, so `opt_start_seq` counts;
* *start, other words*: the search would find an older copy, which would take precedence over `opt_start_seq`. Then the
  entry is written in other words with the same meaning, for which no copy exists.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.waiting import ROUND_TRIP
from nats_bridge.consuming.consumer_plan import consumer_owner
from nats_bridge.consuming.missing_streams import existing_stream
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import ApiError, BridgeError
from nats_bridge.kinds.copying.handoff.native_search import NewestCopy, SearchedRecords, find, native_wanted
from nats_bridge.kinds.copying.handoff.position import EntryRefusedError, check_newest, copied_up_to
from nats_bridge.kinds.copying.handoff.spelling import as_transforms, spellings
from nats_bridge.kinds.copying.model import CopyingRule
from nats_bridge.kinds.copying.position.entry_streams import EntryStreams, last_sequence_after_sent
from nats_bridge.kinds.copying.target import Target
from nats_bridge.rules.handoff.answer import NO_SERVER_SELECTS, Handoff, Wish, refused, stop
from nats_bridge.rules.handoff.stream_body import body_of, examined
from nats_bridge.settings import Settings, Source
from nats_transforms.dialect import Dialect, dialect, server_dialect
from nats_transforms.errors import EngineError
from nats_transforms.sourcing import compile_sourcing
from nats_transforms.subject import collide
from nats_transforms.subject_patterns import Pattern

_Decision: TypeAlias = "tuple[Json | None, str]"
"""The entry for the stream's configuration (None if it is native already), and a sentence on the result."""


def names_of(entries: tuple[Source, ...]) -> list[str]:
    """Return the names of entries for messages: their sources, numbered if a source appears twice."""
    sources = [entry.name for entry in entries]
    return [
        f"source '{name}'" if sources.count(name) == 1 else f"source {number} ('{name}')"
        for number, name in enumerate(sources, 1)
    ]


class CopyingHandoff:
    """Reads a rule that copies, and its streams.

    Args:
        wish: the user's request.
    """

    def __init__(
        self,
        rule: CopyingRule,
        settings: Settings,
        connections: Mapping[str, Connection],
        wish: Wish,
    ) -> None:
        self._rule = rule
        self._connections = connections
        self._target = connections[rule.target_connection]
        self._server = server_dialect(self._target.server_version)
        self._settings = settings
        asked = settings.dialect_of(rule)
        self._dialect = self._server if asked == "native" else dialect(asked)
        self._after = wish.after
        self._owner = consumer_owner(settings.name, rule.name)

    async def answer(self) -> Handoff:
        """Return the configuration that takes over.

        Raises:
            BridgeError: a server refuses or does not answer, or a stream does not exist.
        """
        rule, target = self._rule, self._target
        info = await existing_stream(target, self._rule.name, rule.target_stream)
        problems = self._unsuitable(info["config"])
        if problems:
            return refused(*problems)
        last = await self._settled_last(info)
        info = await target.api.stream_info(rule.target_stream)
        decisions: list[_Decision] = []
        for source, name in zip(rule.entries, names_of(rule.entries), strict=True):
            try:
                native, step = await self._decide(source, info, last)
            except (EntryRefusedError, EngineError) as error:
                problems.append(f"{name}: {error}")
            else:
                decisions.append((native, f"{name}: {step}"))
        if problems:
            return refused(*problems)
        body = body_of(info["config"])
        kept = list(body.get("sources") or ())
        added = [native for native, _ in decisions if native is not None]
        if not added:
            return await self._is_native_already(body, last)
        body["sources"] = [*kept, *added]
        return await examined(target, body, info["config"], self._steps(body, decisions, info["config"]))

    # -- entries that cannot be handed over ---------------------------------------------------------------------------

    def _unsuitable(self, config: Json) -> list[str]:
        place = f"stream '{config['name']}'"
        if config.get("mirror"):
            return [f"{place} is a native mirror: it has no sources; name the rule whose stream takes the copies"]
        if config.get("sealed"):
            return [f"{place} is sealed: it accepts no more messages, not even natively"]
        problems = []
        if config.get("allow_msg_counter"):
            problems.append(
                f"{place} is a counter stream: its server does not know what the bridge has added, and would add the"
                " whole total of every counter again: leave this rule to the bridge, or begin with an empty stream"
            )
        for source, name in zip(self._rule.entries, names_of(self._rule.entries), strict=True):
            problems += [f"{name}: {reason}" for reason in self._only_the_bridge_has(source)]
        return problems

    def _only_the_bridge_has(self, source: Source) -> Iterator[str]:
        """Yield the options of an entry that servers do not support."""
        if source.exclude:
            yield (
                f"exclude {', '.join(source.exclude)}: servers have no such option and would copy these, too: select"
                " what is wanted by subject_transforms, run the bridge with that, and hand over then"
            )
        if source.where is not None:
            yield f"where: {NO_SERVER_SELECTS}"
        if source.acknowledge:
            yield (
                "acknowledge: a server (2.14 and newer) reads such a stream by a durable consumer that a client creates"
                " for it (sources with a consumer), and does not read what the bridge copied. When the stream "
                "is empty, stop the sidecar, run clean, create that consumer, and add the source"
            )
        if source.rename_objects:
            yield (
                "rename_objects: servers have no such option, and copies would name the source's bucket: run the bridge"
                " without that, and hand over then"
            )
        if source.subject_transforms and not self._server.stream_fields_of_2_10:
            yield (
                f"server {self._target.server_version} ignores subject_transforms: upgrade it first (the bridge keeps"
                " copying), then run handoff again"
            )

    async def _settled_last(self, info: Json) -> int:
        """Return the target's last sequence, including messages in flight in a cluster or from a killed sidecar."""
        config = info["config"]
        if config.get("subjects") and not config.get("no_ack"):
            # A user that may not publish there gets no answer. Then decide by the visible messages.
            with contextlib.suppress(BridgeError, UnicodeError, TimeoutError):
                async with asyncio.timeout(ROUND_TRIP):
                    probe = Pattern.of(config["subjects"][0]).example
                    return await last_sequence_after_sent(self._target, str(config["name"]), probe)
        return int(info["state"]["last_seq"])

    # -- one entry ---------------------------------------------------------------------------------------------------

    async def _decide(self, source: Source, info: Json, last: int) -> _Decision:
        """Return the server's takeover of one entry.

        Raises:
            EntryRefusedError, EngineError: the entry cannot be handed over.
        """
        if (native := self._native_already(source, info["config"])) is not None:
            if self._same_texts(source.native(), native):
                return None, "the server copies it already."
            raise EntryRefusedError(
                f"'{info['config']['name']}' sources it natively already, in other words ({_reported(native)}): take"
                " that source out, or the rule"
            )
        source_connection, target = self._connections[source.connection], self._target
        source_info = await existing_stream(source_connection, self._rule.name, source.name)
        sourcing = compile_sourcing(source.native(), self._dialect)
        await self._check_reach(source, source_info)
        if consumer := await copying_consumer(source_connection, source.name, self._owner):
            raise EntryRefusedError(
                f"the rule copies from it at this moment (consumer '{consumer}'): stop the sidecar (SIGTERM) and run"
                " handoff again"
            )
        # The rest is left out on arrival.
        filters = tuple(each.decode() for each in sourcing.filters) if len(sourcing.filters) == 1 else ()
        streams = EntryStreams(
            sourcing,
            Replay(source_connection.api, source.name, filters, headers_only=True),
            source_info,
            target.api,
            info,
            Target.of(info, target.server_version),
            last,
        )
        return await self._placed(source, streams)

    async def _check_reach(self, source: Source, source_info: Json) -> None:
        if source.external is not None or source.connection == self._rule.target_connection:
            return
        try:
            seen = await self._target.api.stream_info(source.name)
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
            seen = None
        if seen is None or seen["created"] != source_info["created"]:
            raise EntryRefusedError(
                f"it is on connection '{source.connection}', and a server copies from another account or cluster"
                " only through an API prefix: add external: {api: …} to the entry (the sidecar then writes it into its"
                " records), or leave this rule to the bridge"
            )

    async def _placed(self, source: Source, streams: EntryStreams) -> _Decision:
        """Turn the bridge's position into the entry with which the server resumes there."""
        reached = await copied_up_to(streams)
        given = self._after.get(source.name)
        if given is not None and not (reached or 0) <= given <= streams.source_last:
            least = f"the newest copy in '{self._rule.target_stream}' is of {reached}" if reached else "0 is the least"
            raise EntryRefusedError(f"--after {given}: {least}, and the last sequence there is {streams.source_last}")
        own = SearchedRecords(streams.sourcing, ())
        (newest,) = await find(self._target.api, self._rule.target_stream, streams.last, [own])
        if given is None:
            await check_newest(streams, newest, reached)
        if reached is None and given is None:
            # The bridge made no copy yet: the entry begins as it would have.
            return source.native(), "nothing was copied yet; the server begins as configured."
        return await self._worded(source, streams, given if given is not None else reached or 0)

    async def _worded(self, source: Source, streams: EntryStreams, position: int) -> _Decision:
        """Return the first spelling of the entry with which the server begins exactly after a position."""
        api, stream = self._target.api, self._rule.target_stream
        older: NewestCopy | None = None
        for number, words in enumerate(self._spellings(source, streams.target_info["config"])):
            try:
                wanted = native_wanted(words, self._server)
            except EngineError as error:
                if not number:
                    raise EntryRefusedError(f"server {self._target.server_version} does not take it: {error}") from None
                continue
            (found,) = await find(api, stream, streams.last, [wanted])
            if found is not None and found.sequence == position:
                return words, (
                    f"the server finds the record of sequence {position} in '{stream}' and resumes at {position + 1}."
                )
            if found is None:
                start = words | {"opt_start_seq": position + 1}
                if not number or older is None:
                    return start, (
                        f"the server finds no record of its own in '{stream}' and begins at opt_start_seq"
                        f" {position + 1}, one after the last copy."
                    )
                return start, (
                    f"the server would find the record of sequence {older.sequence} first and copy what follows again;"
                    f" therefore the entry is written in other words ({_reported(words)}), for which it finds none,"
                    f" and begins at opt_start_seq {position + 1}."
                )
            older = older or found
        assert older is not None
        raise EntryRefusedError(
            f"server {self._target.server_version} would find the record of sequence {older.sequence} and"
            f" resume after it, but {position} is the last one copied: let the sidecar copy one more message (with"
            " dialect 2.10 or newer), stop it, and hand over then"
        )

    def _spellings(self, source: Source, target: Json) -> list[Json]:
        native = source.native()
        if not self._server.stream_fields_of_2_10:
            return [next(spellings(native))]
        found = list(spellings(native))
        if native.get("filter_subject") and target.get("subject_transform"):
            # Stored under other subjects, copies of a filter_subject are not found again by servers that look there.
            rest = {name: value for name, value in found[0].items() if name != "filter_subject"}
            found[0] = {**rest, "subject_transforms": as_transforms(native)}
        return found

    # -- native entries -----------------------------------------------------------------------------------------------

    def _native_already(self, source: Source, config: Json) -> Json | None:
        mine = as_transforms(source.native())
        for native in config.get("sources") or ():
            if native["name"] == source.name and any(
                collide((a["src"] or ">").encode(), (b["src"] or ">").encode())
                for a in mine
                for b in as_transforms(native)
            ):
                return dict(native)
        return None

    def _same_texts(self, entry: Json, native: Json) -> bool:
        return any(as_transforms(words) == as_transforms(native) for words in spellings(entry))

    async def _is_native_already(self, body: Json, last: int) -> Handoff:
        """Answer for a native entry: nothing to hand over; a used starting sequence may be removed."""
        dropped = []
        for native in body["sources"]:
            start = native.get("opt_start_seq")
            if not start or native["name"] not in {source.name for source in self._rule.entries}:
                continue
            (found,) = await find(
                self._target.api, self._rule.target_stream, last, [native_wanted(native, self._server)]
            )
            if found is not None and found.sequence >= start:
                del native["opt_start_seq"]
                dropped.append(f"'{native['name']}' {start}")
        text = f"Rule '{self._rule.name}' is handed over: '{self._rule.target_stream}' has its sources natively."
        if not dropped:
            return Handoff(body, (text + " This is its current configuration; nothing needs to be sent.",))
        return Handoff(
            body,
            (
                text,
                f"The server has copied since; this update removes opt_start_seq ({', '.join(dropped)}), which "
                "is no longer needed: servers before 2.15 would begin there again after a purge and a restart.",
            ),
        )

    # -- the explanation ---------------------------------------------------------------------------------------------

    def _steps(self, body: Json, decisions: list[_Decision], before: Json) -> list[str]:
        rule, version = self._rule, self._target.server_version
        starts = any("opt_start_seq" in (native or {}) for native, _ in decisions)
        steps = [
            f"{stop(self._settings)}, or leave it stopped, and do not start rule '{rule.name}' again: it would"
            " refuse to, because the stream then has the same sources natively.",
            f"Send the update to {self._target.api.subject('STREAM.UPDATE.' + body['name'])}; server {version} takes"
            " over from then on. (If the sidecar copies anything before that, run handoff again.)",
            *(step for _, step in decisions),
        ]
        if starts:
            steps.append(
                "Later, when the server has copied a message of each source, run this command again: it prints "
                "the update without opt_start_seq, which is no longer needed."
            )
        if before.get("subjects"):
            steps.append(
                f"Subjects {', '.join(before['subjects'])} stay, for local publishers; if only the bridge published"
                " there, they may be taken out, in the same update or later: copies need none."
            )
        steps += [f"Warning: {each}" for each in self._differences(before, self._server)]
        return steps

    def _differences(self, config: Json, server: Dialect) -> list[str]:
        """List the differences between the server's copying and the bridge's."""
        found = []
        if not server.sourcing_strips_expectations:
            found.append(
                f"server {self._target.server_version} checks the Nats-Expected- headers of what it copies, and stops"
                " at the first that does not hold; the bridge left them out."
            )
        if not config.get("allow_rollup_hdrs") and not server.sourcing_takes_refused_rollups:
            found.append(
                f"server {self._target.server_version} stops copying at a message with Nats-Rollup, because the stream"
                " does not allow rollups (allow_rollup_hdrs); the bridge left that header out."
            )
        if not server.copies_skip_duplicates and int(config.get("duplicate_window") or 0):
            found.append(
                "a message whose Nats-Msg-Id is in the stream already holds its source back until the duplicate_window"
                " has passed, and is stored then; the bridge left it out."
            )
        return found


def _reported(native: Json) -> str:
    if native.get("subject_transforms"):
        return ", ".join(f"{each['src']} → {each['dest'] or each['src']}" for each in as_transforms(native))
    return str(native.get("filter_subject") or "everything")


async def copying_consumer(connection: Connection, source: str, owner: str) -> str | None:
    """Return the name of a consumer through which a rule copies at this moment; None without one.

    Args:
        connection: the connection that holds the source.
        owner: how the descriptions of the rule's consumers begin.
    """
    for info in await connection.api.consumers(source):
        if info.get("push_bound") and str(info["config"].get("description", "")).startswith(owner):
            return str(info["name"])
    return None
