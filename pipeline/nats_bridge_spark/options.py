"""Defines the options of the data source `jetstream` for reads and writes, and the error for an invalid one.

Spark hands options on as text, their names in small letters.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Final

from nats_bridge_spark.connections import FIELDS
from nats_bridge_spark.errors import OptionError

_FOREIGN: Final = {
    "nats.stream.name": "stream",
    "nats.pull.subscription.stream.name": "stream",
    "nats.stream.subjects": "subjects",
    "nats.credential.file": "creds",
    "nats.connection.timeout": "connectTimeout",
    "minoffsetspertrigger": "minRowsPerTrigger",
    "maxoffsetspertrigger": "maxRowsPerTrigger",
}
"""Options with an equivalent here, of the NATS-Spark connector for the JVM and of Spark's Kafka source."""
_HOST, _PORT = "nats.host", "nats.port"

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(rf"(\d+)\s*({'|'.join(_UNITS)})")

_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
"""Options that Spark itself, or users by habit, add to a source's; they are ignored."""

READ: Final = (
    "stream",
    "streams",
    "subjects",
    "startSequence",
    "endSequence",
    "startTime",
    "endTime",
    "partitions",
    "payload",
    "maxRowsPerTrigger",
    "minRowsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "patience",
)
"""The options of a read besides the connection's; docs/spark-streams.md describes them."""

WRITE: Final = ("stream", "idColumn", "writeId", "patience", "lookBack", "checkSubjects")
"""The options of a write besides the connection's."""


def given(options: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return the options by name, spelled as in `known` and `connections.FIELDS`; those of connectors are translated.

    Args:
        options: as Spark hands them on, in any case.
        known: `READ` or `WRITE`; both also accept the connection's options.

    Raises:
        OptionError: an option is unknown, or given twice under two names.
    """
    names = {name.lower(): name for name in (*known, *FIELDS)}
    found: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for key, value in {**options, **_servers(options)}.items():
        lowered = key.lower()
        if lowered in _OF_SPARK or lowered in (_HOST, _PORT):
            continue
        if (name := names.get(_FOREIGN.get(lowered, lowered).lower())) is None:
            raise OptionError(_unknown(lowered, names))
        if name in found and found[name] != value:
            raise OptionError(f"option {name}: given twice, also as {spelled[name]}, with another value; leave one out")
        found[name], spelled[name] = value, key
    return found


def number(found: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    """Return an option's integer of at least `least`, or raise an `OptionError`; None if it is not given."""
    if (text := found.get(name)) is None:
        return None
    try:
        value = int(text)
    except ValueError:
        raise OptionError(f"option {name}: '{text}' is not an integer") from None
    if value < least:
        raise OptionError(f"option {name}: {value} must be at least {least}")
    return value


def duration(found: Mapping[str, str], name: str) -> float | None:
    """Return an option's seconds, from a number with a unit, or raise an `OptionError`; None if it is not given."""
    if (text := found.get(name)) is None:
        return None
    # Kafka's source would take a number without a unit for milliseconds.
    parts = _DURATION.fullmatch(text.strip().lower())
    if parts is None:
        raise OptionError(f"option {name}: '{text}' is not a time with a unit; write it as 500ms, 30s, 15m or 1h")
    return int(parts[1]) * _UNITS[parts[2]]


def flag(found: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return an option that is `true` or `false`, or raise an `OptionError`."""
    text = found.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name}: '{found[name]}' must be true or false")
    return text == "true"


def _servers(options: Mapping[str, str]) -> dict[str, str]:
    """Return the option `servers` for the connector's options of a host and a port, if they are given."""
    lowered = {key.lower(): value for key, value in options.items()}
    if _HOST not in lowered:
        if _PORT in lowered:
            raise OptionError(f"option {_PORT}: needs {_HOST}; or say servers instead of both")
        return {}
    if "servers" in lowered:
        raise OptionError(f"option {_HOST}: servers says where the servers are already; leave one out")
    host = lowered[_HOST]
    return {"servers": f"nats://{f'[{host}]' if ':' in host else host}:{lowered.get(_PORT, '4222')}"}


def _unknown(lowered: str, names: Mapping[str, str]) -> str:
    if lowered.startswith("nats."):
        same = ", ".join((_HOST, _PORT, *(name for name in _FOREIGN if name.startswith("nats."))))
        return f"option {lowered}: has no meaning here; of the NATS-Spark connector's options these have: {same}"
    near = difflib.get_close_matches(lowered, names, n=1)
    hint = f"did you mean {names[near[0]]}?" if near else f"known are {', '.join(sorted(names.values()))}"
    return f"option {lowered}: unknown; {hint}"
