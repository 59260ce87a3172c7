"""Checks names, limits and durations, and fills in the server's defaults.

Only checks for every kind of stream. Limits of the account and of the server's configuration, and the number of servers
for replicas, are unknown here.
"""

from typing import Any

from nats_transforms.dialect import Dialect
from nats_transforms.stream_config.refusals import invalid, pedantic, refusal
from nats_transforms.stream_config.texts import encoded, is_valid_name

_MILLISECOND = 1_000_000
_DEFAULT_DUPLICATE_WINDOW = 120_000 * _MILLISECOND
_SHORTEST = 100 * _MILLISECOND
_LONGEST_NAME = 255
_LONGEST_DESCRIPTION = 4096
_LARGEST_METADATA = 128 * 1024
_MOST_REPLICAS = 5
_UNLIMITED_WHEN_ZERO = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")


def check_name(config: dict[str, Any], dialect: Dialect) -> None:
    """The name, the description and the size of the metadata."""
    name: str = config["name"]
    if not is_valid_name(name, dialect):
        slashes = ", '\\', '/'" if dialect.asset_names_refuse_slashes else ""
        raise invalid(f"stream name is required and can not contain '.', '*', '>'{slashes}")
    if len(encoded(name)) > _LONGEST_NAME:
        raise invalid(f"stream name is too long, maximum allowed is {_LONGEST_NAME}")
    if len(encoded(config["description"])) > _LONGEST_DESCRIPTION:
        raise invalid(f"stream description is too long, maximum allowed is {_LONGEST_DESCRIPTION}")
    metadata: dict[str, str] = config.get("metadata", {})
    if sum(len(encoded(key)) + len(encoded(value)) for key, value in metadata.items()) > _LARGEST_METADATA:
        raise invalid(f"stream metadata exceeds maximum size of {_LARGEST_METADATA} bytes")


def check_limits(config: dict[str, Any], dialect: Dialect) -> None:
    """Fill in defaults in place, and refuse combinations that do not work."""
    config["num_replicas"] = config["num_replicas"] or 1
    if config["num_replicas"] > _MOST_REPLICAS:
        raise invalid(f"maximum replicas is {_MOST_REPLICAS}")
    if config["num_replicas"] < 0:
        raise refusal("negative_replicas")
    _fill_in_unlimited(config, dialect)
    _check_durations(config, dialect)
    if config["deny_purge"] and config["allow_rollup_hdrs"]:
        raise invalid("roll-ups require the purge permission")


def check_discard(config: dict[str, Any]) -> None:
    """Check the requirements of `discard_new_per_subject`."""
    if config["discard_new_per_subject"]:
        if config["discard"] != "new":
            raise invalid("discard new per subject requires discard new policy to be set")
        if config["max_msgs_per_subject"] <= 0:
            raise invalid("discard new per subject requires max msgs per subject > 0")


def _fill_in_unlimited(config: dict[str, Any], dialect: Dialect) -> None:
    for limit in _UNLIMITED_WHEN_ZERO:
        below = config[limit] < -1 and dialect.negative_limits_mean_unlimited
        if below and config.get("pedantic"):
            raise pedantic(f"{limit} must be set to -1")
        if below or config[limit] == 0:
            config[limit] = -1


def _check_durations(config: dict[str, Any], dialect: Dialect) -> None:
    age: int = config["max_age"]
    too_short = 0 < age < _SHORTEST
    if dialect.negative_limits_mean_unlimited:
        if age < 0:
            raise invalid("max age can not be negative")
        if too_short:
            raise invalid("max age needs to be >= 100ms")
    _fill_in_duplicate_window(config, dialect)
    if too_short:
        raise invalid("max age needs to be >= 100ms")
    window: int = config["duplicate_window"]
    if window < 0:
        raise invalid("duplicates window can not be negative")
    if age != 0 and window > age:
        raise invalid("duplicates window can not be larger then max age")
    if 0 < window < _SHORTEST:
        raise invalid("duplicates window needs to be >= 100ms")


def _fill_in_duplicate_window(config: dict[str, Any], dialect: Dialect) -> None:
    if config["duplicate_window"] != 0 or config["mirror"] is not None:
        return
    if config["sources"] and dialect.sources_drop_duplicate_window:
        return
    age: int = config["max_age"]
    if age != 0 and age < _DEFAULT_DUPLICATE_WINDOW:
        if config.get("pedantic"):
            # 2.11 repeats the first words.
            raise pedantic("duplicate window cannot be bigger than max age", repeats=not dialect.stream_fields_of_2_12)
        config["duplicate_window"] = age
    else:
        config["duplicate_window"] = _DEFAULT_DUPLICATE_WINDOW
