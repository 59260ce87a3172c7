"""Checks a native_copy rule before it serves, and describes the stream that uses it."""

from __future__ import annotations

import json
from typing import Final

from nats_bridge.bridge.errors import ConfigError, RuleRefusedError
from nats_bridge.bridge.settings import NativeCopyRule
from nats_bridge.transforms.dialect import Dialect
from nats_bridge.transforms.errors import TransformError
from nats_bridge.transforms.sourcing import Sourcing, compile_sourcing

TAKES_AT: Final = (2, 11)
"""Since when a server takes a delivery over a leaf connection whose subject holds an `@`."""


def compile_rule(rule: NativeCopyRule, dialect: Dialect) -> Sourcing:
    """The rule's filters and transforms.

    Raises:
        ConfigError: no server of the dialect would take a transform.
    """
    try:
        return compile_sourcing(rule.entry, dialect, exclude=[pattern.encode() for pattern in rule.exclude])
    except TransformError as error:
        raise ConfigError(f"rule '{rule.name}': subject_transforms: {error.reason}") from None


def check_server_that_copies(rule: NativeCopyRule, sourcing: Sourcing, version: str) -> None:
    """Check that the server can store what the rule delivers.

    Args:
        rule: the rule.
        sourcing: its compiled filters and transforms.
        version: of the server that copies.

    Raises:
        RuleRefusedError: it cannot.
    """
    if is_at_least(version, TAKES_AT):
        return
    for destination in sourcing.record_destinations:
        if b"@" in destination:
            raise RuleRefusedError(
                f"rule '{rule.name}': dest '{destination.decode()}' holds an '@', at which server {version} cuts a"
                " delivery over a leaf connection apart: it would store nothing; use another character, or upgrade"
                " the server that copies to 2.11 or newer"
            )


def stream_to_create(rule: NativeCopyRule) -> str:
    """The stream that copies through the rule, as JSON for the server that copies; `sources` takes the same object."""
    external = {"api": f"{rule.prefix}.API", "deliver": f"{rule.prefix}.deliver"}
    return json.dumps({"name": rule.stream, "mirror": {"name": rule.stream, "external": external}})


def is_at_least(version: str, line: tuple[int, int]) -> bool:
    """Whether a server's version, such as `2.10.27`, is of a line or a newer one."""
    major, minor, *_ = (*version.split("."), "0", "0")
    return (int(major), int(minor)) >= line
