"""What environment variables and secret files set: the values that win over the configuration file's.

`bridge.settings.variables` reads them. It is imported only where there are any, since pydantic-settings takes longer to
import than all other settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nats_bridge.marked_yaml import Path

__all__ = ["PREFIX", "SECRETS_DIR_VARIABLE", "Overlay", "overlay"]

PREFIX: Final = "BRIDGE_"
SECRETS_DIR_VARIABLE: Final = "BRIDGE_SECRETS_DIR"
"""Names the folder with secret files."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Values that win over the file's.

    Attributes:
        values: nested as in the file, keys in lower case.
        origins: which variable or secret file gave the value at a path.
        problems: lines about variables that cannot be used.
    """

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def overlay(environ: Mapping[str, str]) -> Overlay:
    """What the variables of `environ`, and the secret files they point to, set."""
    result = Overlay()
    if any(name.upper().startswith(PREFIX) for name in environ):
        from nats_bridge.bridge.settings.variables import read_into

        read_into(result, environ)
    return result
