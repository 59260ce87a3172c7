"""Parameters of tests that run on fewer versions in `make test` than with `--all`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

from nats_transforms.tested_versions import LIVE_VERSIONS

ONLY = os.environ.get("NATS_BRIDGE_TEST_SERVER", "")
"""The only server version that tests run on, whatever the table of versions says; empty: those of the table."""

*_OLDER, NEWEST = (ONLY,) if ONLY else LIVE_VERSIONS


def with_all(*versions: str) -> list[Any]:
    """Parameters of a test with `--all`, and none of it in `make test`."""
    return [pytest.param(each, marks=pytest.mark.exhaustive) for each in versions]


EACH = [*with_all(*_OLDER), NEWEST]
"""Parameters of a test: the newest version in `make test`, each one with `--all`."""

OLDEST_AND_NEWEST = [*_OLDER[:1], *EACH[len(_OLDER[:1]) :]]
"""Parameters of a fixture: the oldest and the newest version in `make test`, each one with `--all`."""


def on_each_version(*, times: int) -> pytest.MarkDecorator:
    """Arguments `version` and `times`: on the newest server in `make test`, on each with `--all`.

    As often as finds what is wrong with a change; `make stress` repeats a test to find what is rare.
    """
    return pytest.mark.parametrize(
        ("version", "times"),
        [*(pytest.param(each, times, marks=pytest.mark.exhaustive) for each in _OLDER), (NEWEST, times)],
    )


def by_turns(names: str, versions: Sequence[Any], *axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Arguments of a test, the version first: every combination on one version in `make test`, on each with `--all`.

    The versions take turns, so that a value of one axis meets each version if the other axes have enough values.
    """
    of_make_test = [each for each in versions if isinstance(each, str)]
    parameters = []
    for chosen in product(*map(enumerate, axes)):
        turn = of_make_test[sum(place for place, _ in chosen) % len(of_make_test)]
        values = [part for _, value in chosen for part in (value if isinstance(value, tuple) else (value,))]
        for version in versions:
            marks = [] if version == turn else [pytest.mark.exhaustive]
            text = version if isinstance(version, str) else version.values[0]
            parameters.append(pytest.param(text, *values, marks=marks, id="-".join(map(_shown, (text, *values)))))
    return pytest.mark.parametrize(names, parameters)


def _shown(value: object) -> str:
    return str(getattr(value, "__name__", value))
