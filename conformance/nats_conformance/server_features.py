"""Finds the features that servers added between versions and that affect a stream; `server_features.yaml` lists all."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

_FEATURES: Final = Path(__file__).with_name("server_features.yaml")


def changes(config: Mapping[str, Any], versions: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return the features between versions that affect a stream: minor line, title and effect, oldest first.

    Args:
        config: the stream's configuration.
        versions: full versions, such as `2.10.27`.
    """
    lines = sorted({_line(version) for version in versions})
    found = [
        (since, feature["title"], brings)
        for feature in _features()
        if _concerns(feature, config)
        for since, brings in feature["brings"].items()
        if lines and lines[0] < _line(since) <= lines[-1]
    ]
    return sorted(found, key=lambda each: _line(each[0]))


@cache
def _features() -> list[dict[str, Any]]:
    features: list[dict[str, Any]] = yaml.safe_load(_FEATURES.read_text("utf-8"))
    return features


def _concerns(feature: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Return whether a feature changes anything for a stream with this configuration, or could be used by it."""
    return (
        any(config.get(member) for member in feature.get("members", ()))
        or config.get("retention") in feature.get("retention", ())
        or ("prefix" in feature and str(config.get("name", "")).startswith(feature["prefix"]))
    )


def _line(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
