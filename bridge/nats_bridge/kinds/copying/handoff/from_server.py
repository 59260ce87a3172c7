"""Taking copies back from the server: the rule resumes after the newest native copy.

The bridge can read the server's own records in every form, but the texts of the entries must agree.
"""

from __future__ import annotations

from collections.abc import Mapping

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.missing_streams import existing_stream
from nats_bridge.kinds.copying.entry_subjects import destinations
from nats_bridge.kinds.copying.handoff.spelling import as_transforms
from nats_bridge.kinds.copying.handoff.to_server import names_of
from nats_bridge.kinds.copying.model import CopyingRule
from nats_bridge.rules.handoff.answer import Handoff, refused
from nats_bridge.rules.handoff.stream_body import body_of, examined
from nats_transforms.dialect import NEWEST
from nats_transforms.errors import EngineError
from nats_transforms.sourcing import compile_sourcing
from nats_transforms.subject import is_subset


async def copying_back(rule: CopyingRule, connections: Mapping[str, Connection]) -> Handoff:
    """Return the configuration without the native sources that a rule repeats.

    Raises:
        BridgeError: a server refuses or does not answer, or the stream does not exist.
    """
    connection = connections[rule.target_connection]
    config = (await existing_stream(connection, rule.name, rule.target_stream))["config"]
    body = body_of(config)
    sources: list[Json] = list(body.get("sources") or ())
    problems, needed = [], []
    for source, name in zip(rule.entries, names_of(rule.entries), strict=True):
        entry = source.native()
        alike = [native for native in sources if native["name"] == source.name]
        found = next((native for native in alike if _record_texts(native) == _record_texts(entry)), None)
        if found is None:
            problems.append(_missing(name, config, alike))
            continue
        sources.remove(found)
        try:
            needed += destinations(compile_sourcing(entry, NEWEST))
        except EngineError as error:
            problems.append(f"{name}: {error}")
    if problems:
        return refused(*problems)
    body["sources"] = sources
    if not sources:
        del body["sources"]
    subjects = list(body.get("subjects") or ())
    missing = [
        each.decode() for each in dict.fromkeys(needed) if not any(is_subset(each, s.encode()) for s in subjects)
    ]
    if missing and not subjects:
        body["subjects"] = missing
    steps = [
        f"Send the update to {connection.api.subject('STREAM.UPDATE.' + body['name'])}: the server stops copying."
        " Before that the sidecar would refuse to start, because messages would be stored twice.",
        f"Start the sidecar: rule '{rule.name}' reads the server's records in '{body['name']}' and resumes with the"
        " message behind the newest of them.",
    ]
    if missing and not subjects:
        steps.insert(0, f"The stream gets subjects {', '.join(missing)}, on which the bridge stores its copies.")
    elif missing:
        steps.append(
            f"Warning: '{body['name']}' takes {', '.join(subjects)}, which does not cover {', '.join(missing)}: "
            "the bridge can only store messages that match a subject of the stream."
        )
    return await examined(connection, body, config, steps)


def _record_texts(entry: Json) -> tuple[list[Json], object]:
    transforms = [{"src": each["src"] or ">", "dest": each["dest"] or ">"} for each in as_transforms(entry)]
    return transforms, (entry.get("external") or {}).get("api")


def _missing(name: str, config: Json, alike: list[Json]) -> str:
    place = f"stream '{config['name']}'"
    if not alike:
        return f"{name}: {place} has no such native source: there is nothing to take back"
    words = "; ".join(str(as_transforms(native)).replace("'", '"') for native in alike)
    return (
        f"{name}: {place} sources it in other words, and its copies are known by them: write the rule's"
        f" subject_transforms as {words}"
    )
