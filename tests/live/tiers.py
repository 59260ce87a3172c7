"""Parameters of tests that run on fewer versions in `make test` than with `--all`."""

from __future__ import annotations

import pytest

from nats_bridge.transforms.tested_versions import LIVE_VERSIONS

_OLDEST, *_BETWEEN, _NEWEST = LIVE_VERSIONS

OLDEST_AND_NEWEST = [_OLDEST, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in _BETWEEN), _NEWEST]
"""Parameters of a fixture: the oldest and the newest version in `make test`, each one with `--all`."""


def on_each_version(*, times: int) -> pytest.MarkDecorator:
    """Arguments `version` and `times`: on the newest server in `make test`, on each with `--all`.

    As often as finds what is wrong with a change; `make stress` repeats a test to find what is rare.
    """
    return pytest.mark.parametrize(
        ("version", "times"),
        [*(pytest.param(each, times, marks=pytest.mark.exhaustive) for each in LIVE_VERSIONS[:-1]), (_NEWEST, times)],
    )
