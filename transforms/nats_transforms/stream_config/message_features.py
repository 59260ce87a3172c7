"""Checks counters, delete markers, schedules and asynchronous persistence against the rest of a configuration.

Servers before 2.11 (delete markers) and 2.12 (the others) do not have these members, so they are not in the request.
"""

from typing import Any

from nats_transforms.dialect import Dialect
from nats_transforms.stream_config.refusals import invalid

_SECOND = 1_000_000_000


def check_counters(config: dict[str, Any], dialect: Dialect) -> None:
    """Check the settings that `allow_msg_counter` excludes.

    Delete markers turn message TTLs on only after this check.
    """
    if not config.get("allow_msg_counter"):
        return
    if config["discard"] == "new":
        raise invalid("counter stream cannot use discard new")
    if config["allow_msg_ttl"]:
        raise invalid("counter stream cannot use message TTLs")
    if config["allow_msg_schedules"] and dialect.schedules_exclude_counters_and_discard_new:
        raise invalid("counter stream cannot use message schedules")
    if config["retention"] != "limits":
        raise invalid("counter stream can only use limits retention")


def check_delete_markers(config: dict[str, Any], dialect: Dialect) -> None:
    """Check `subject_delete_marker_ttl`, and turn on the settings that it needs, in place."""
    marker_ttl: int = config.get("subject_delete_marker_ttl", 0)
    if not dialect.delete_markers_turn_on_what_they_need:
        _check_first_delete_markers(config, marker_ttl)
    elif marker_ttl < 0:
        raise invalid("subject delete marker TTL must not be negative")
    elif 0 < marker_ttl < _SECOND:
        raise invalid("subject delete marker TTL must be at least 1 second")
    elif marker_ttl:
        if not config["allow_msg_ttl"] and config["pedantic"]:
            raise invalid("subject delete marker cannot be set if message TTLs are disabled")
        config["allow_msg_ttl"] = True
        _turn_on_rollups(config, "subject delete marker")


def _check_first_delete_markers(config: dict[str, Any], marker_ttl: int) -> None:
    if marker_ttl > 0 and not config["allow_msg_ttl"]:
        raise invalid("subject marker delete cannot be set if message TTLs are disabled")
    if 0 < marker_ttl < _SECOND:
        raise invalid("subject marker delete TTL must be at least 1 second")
    if marker_ttl < 0:
        raise invalid("subject marker delete TTL must not be negative")


def check_schedules(config: dict[str, Any], dialect: Dialect) -> None:
    """Check the settings that `allow_msg_schedules` excludes, and turn on those that schedules need, in place."""
    if not config.get("allow_msg_schedules"):
        return
    if config["discard"] == "new" and dialect.schedules_exclude_counters_and_discard_new:
        raise invalid("message scheduling cannot use discard new")
    _turn_on_rollups(config, "message scheduling")


def _turn_on_rollups(config: dict[str, Any], what_needs_them: str) -> None:
    if config["allow_rollup_hdrs"]:
        return
    if config["pedantic"]:
        raise invalid(f"{what_needs_them} cannot be set if roll-ups are disabled")
    config.update(allow_rollup_hdrs=True, deny_purge=False)


def check_persistence(config: dict[str, Any]) -> None:
    """Check the settings that `persist_mode: async` excludes."""
    if config.get("persist_mode") != "async":
        return
    if config["storage"] != "file":
        raise invalid("async persist mode is only supported on file storage")
    if config["num_replicas"] > 1:
        raise invalid("async persist mode is not supported on replicated streams")
    if config["allow_atomic"]:
        raise invalid("async persist mode is not supported with atomic batch publish")
