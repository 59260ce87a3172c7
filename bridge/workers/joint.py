"""What is asked of a foreman by whoever tells of all workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from bridge.reloading import Reloader
from bridge.settings import Rule, Settings
from bridge.telemetry.service import Telemetry
from bridge.workers.channel import Json
from bridge.workers.slot import Slot

__all__ = ["Answers", "Joint", "places"]


class Joint(Protocol):
    """A sidecar of several processes."""

    @property
    def settings(self) -> Settings:
        """The configuration."""

    @property
    def slots(self) -> Sequence[Slot]:
        """The workers."""

    @property
    def shares(self) -> Mapping[str, int]:
        """The worker of every rule."""

    @property
    def config_path(self) -> Path:
        """The configuration file."""

    @property
    def reloader(self) -> Reloader:
        """What reads it again."""

    @property
    def telemetry(self) -> Telemetry:
        """Metrics of the foreman's own."""

    @property
    def started(self) -> bool:
        """Whether the connections were up once."""

    @property
    def draining(self) -> bool:
        """Whether it is on its way out."""


Answers: TypeAlias = dict[int, Json | str]
"""By worker: what it says, or why it says nothing."""


def places(joint: Joint) -> list[tuple[Rule, int]]:
    """The rules in the order of the configuration, and their workers."""
    return [(rule, joint.shares[rule.name]) for rule in joint.settings.rules if rule.name in joint.shares]
