"""The decision about a configuration: every check in the server's order.

Theory of operation. The request is read into a complete record (`reading`). The checks then go over that record in the
order of the dialect's server, because the first refusal is the answer, and fill in the defaults. The result is written
as the server returns it (`writing`). An update passes the same checks, and then those of `updates`. If versions differ
in the order, `Dialect` has a flag for it.

Worked example: `subjects: [a.>]`, `republish: a.* to a.out.{{wildcard(1)}}`, which forms a cycle, and
`subject_transform: a.* to b.{{wildcard(2)}}`, which has only one wildcard.

```text
2.9.10   subject_transform is unknown and ignored             10052, the republish destination forms a cycle
2.10.27  republish is checked first (`_check`)                10052, the same
         without republish: the transform fails in `_build`   10049, wildcard index out of range
2.15.3   the ingress transform is checked first (`_check`)    10156, wildcard index out of range
```

Without both, and with `max_msgs: 0` and `republish: "" to out.>`, all three accept, and return `max_msgs: -1` and
`src: >`.

Invariants:

* One refusal is the answer: the first one of the server's order. Nothing is collected.
* A returned configuration has all defaults, and is accepted again.
* Nothing depends on a running server: see `examine` for the limits of that.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nats_transforms.dialect import NEWEST, Dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.stream_config.defects import ConfigWarning, warnings_about
from nats_transforms.stream_config.limits import check_discard, check_limits, check_name
from nats_transforms.stream_config.message_features import (
    check_counters,
    check_delete_markers,
    check_persistence,
    check_schedules,
)
from nats_transforms.stream_config.own_transforms import check_ingress, check_republish
from nats_transforms.stream_config.reading import Request, read_request
from nats_transforms.stream_config.refusals import invalid, not_created, refusal
from nats_transforms.stream_config.sources import (
    Prefixes,
    Streams,
    check_cycles,
    check_filters_of_sources,
    check_mirror,
    check_prefixes,
    check_sources,
    transform_error,
)
from nats_transforms.stream_config.subjects import check_subjects
from nats_transforms.stream_config.texts import collide
from nats_transforms.stream_config.updates import carry_out, check_changes, seal
from nats_transforms.stream_config.writing import write_config

Sources = Mapping[str, Sequence[str] | Mapping[str, object]]
"""Other streams of the account by name: their subjects, or their whole configuration (which cycles need)."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted configuration, as the server returns it, with warnings."""

    config: dict[str, Any]
    warnings: tuple[ConfigWarning, ...]


def validate(
    config: object,
    dialect: Dialect = NEWEST,
    *,
    previous: Mapping[str, object] | None = None,
    sources: Sources | None = None,
) -> dict[str, Any]:
    """Return the configuration of `examine`, without its warnings, or raise the same error."""
    return examine(config, dialect, previous=previous, sources=sources).config


def examine(
    config: object,
    dialect: Dialect = NEWEST,
    *,
    previous: Mapping[str, object] | None = None,
    sources: Sources | None = None,
    strict: bool | None = None,
) -> Accepted:
    """Decide a native stream configuration as a server of the dialect does at create, or at update.

    `config` is the JSON object of the request (with values from `read_json` or `json.loads`; other values than objects
    are refused like by the server). `previous` makes it an update of the stream with that configuration. `sources` are
    the other streams that the server sees in the account; any other name counts as a stream that does not exist.
    `strict` overrides whether unknown members are refused.

    Conditions that only a running server knows are not checked: limits of the account and the server, enough servers
    for `num_replicas`, an existing stream of that name, and `consumer_limits` of an update below those of its
    consumers.

    Raises:
        StreamConfigError: the server's refusal, with its HTTP code, error code and description.
    """
    request, ignored = read_request(config, dialect, strict=strict)
    streams = {name: _stream(name, source, dialect) for name, source in (sources or {}).items()}
    if previous is None:
        streams.pop(request["name"], None)
        _check_create_request(request)
        _check(request, dialect, streams)
        _build(request, dialect, streams)
        emptied = False
    else:
        emptied = _update(request, previous, dialect, streams)
    warnings = warnings_about(request, ignored, emptied=emptied, dialect=dialect)
    return Accepted(write_config(request, dialect), warnings)


def _stream(name: str, source: Sequence[str] | Mapping[str, object], dialect: Dialect) -> Request:
    given = dict(source) if isinstance(source, Mapping) else {"subjects": list(source)}
    stream, _ = read_request({**given, "name": name}, dialect, strict=False)
    if isinstance(source, Mapping) and not stream["subjects"] and not stream["sources"] and not stream["mirror"]:
        stream["subjects"] = [name]
    return stream


def _check_create_request(request: Request) -> None:
    if not request["name"]:
        # No subject of the API can name such a stream, so the server's first comparison fails.
        raise refusal("name_mismatch")
    if "/" in request["name"] or "\\" in request["name"]:
        raise refusal("path_separators")
    if request["sealed"]:
        raise invalid("stream configuration for create can not be sealed")
    if request["mirror_direct"] and request["mirror"] is None:
        raise invalid("stream has no mirror but does have mirror direct")


def _check(request: Request, dialect: Dialect, streams: Streams) -> None:
    check_name(request, dialect)
    check_limits(request, dialect)
    check_counters(request, dialect)
    check_discard(request)
    check_delete_markers(request, dialect)
    check_schedules(request, dialect)
    check_persistence(request)
    prefixes = Prefixes([], [], [])
    check_mirror(request, dialect, streams, prefixes)
    check_sources(request, dialect, streams, prefixes)
    check_prefixes(prefixes, dialect)
    check_cycles(request, dialect, streams)
    check_subjects(request, dialect)
    if dialect.ingress_transform_is_checked_first:
        check_ingress(request, dialect)
        check_republish(request, dialect)
    else:
        check_republish(request, dialect)
        check_ingress(request, dialect)
    if (
        dialect.empty_placement_is_dropped
        and request["placement"] is not None
        and all(value in ("", ()) for value in request["placement"].values())
    ):
        request["placement"] = None
    if request["placement"] is not None and request["placement"].get("preferred"):
        raise invalid("preferred server not permitted in placement")


def _build(request: Request, dialect: Dialect, streams: Streams) -> None:
    if request.get("template_owner"):
        raise not_created("stream not owned by template")
    check_filters_of_sources(request, dialect)
    _check_other_streams(request, streams, dialect)
    ingress = request.get("subject_transform")
    reason = "" if ingress is None else transform_error(ingress, dialect)
    if ingress is not None and reason:
        raise not_created(f"stream subject transform from '{ingress['src']}' to '{ingress['dest']}': {reason}")


def _check_other_streams(request: Request, streams: Streams, dialect: Dialect) -> None:
    for name, stream in streams.items():
        if name != request["name"] and any(
            collide(mine, other, dialect) for mine in request["subjects"] for other in stream["subjects"]
        ):
            raise refusal("overlaps_stream")


def _update(request: Request, previous: Mapping[str, object], dialect: Dialect, streams: dict[str, Request]) -> bool:
    """Check an update. Return whether its republish rule had no destination and got one."""
    before, _ = read_request(previous, dialect, strict=False)
    streams[before["name"]] = before
    with suppress(StreamConfigError):
        # Only for the defaults that it fills in: a server may have a stream that it would refuse today.
        _check(before, dialect, {})
    # ... and then the result of an update: no stream is created sealed.
    seal(before)
    _check(request, dialect, streams)
    if request["name"] != before["name"]:
        raise refusal("name_mismatch")
    # Servers check twice: the request, and the result of the update (2.9 to 2.15).
    _check(request, dialect, streams)
    check_changes(request, before, dialect)
    _check_other_streams(request, streams, dialect)
    rule = request["republish"]
    emptied = rule is not None and not rule["dest"]
    carry_out(request, before, dialect)
    return emptied
