"""Parameters of tests that are smaller in `make test` than with `--all`."""

from __future__ import annotations

import pytest

from nats_bridge.native_servers import TWIN_VERSIONS

_OLDEST, *_BETWEEN, _NEWEST = TWIN_VERSIONS

OLDEST_AND_NEWEST = [_OLDEST, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in _BETWEEN), _NEWEST]
"""Parameters of a fixture: the oldest and the newest version in `make test`, each one with `--all`."""


def few_or_many(*, few: int, many: int) -> pytest.MarkDecorator:
    """Arguments `version` and `times`: few times on the newest server in `make test`, many on each with `--all`."""
    return pytest.mark.parametrize(
        ("version", "times"),
        [(_NEWEST, few), *(pytest.param(each, many, marks=pytest.mark.exhaustive) for each in TWIN_VERSIONS)],
    )
