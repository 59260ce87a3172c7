"""A plugin of pytest for trials: that a property fails is enough, the smallest example of it is not looked for."""

from __future__ import annotations

from hypothesis import Phase, settings


def pytest_sessionstart() -> None:
    """Before modules are collected: their own settings build on these."""
    settings.register_profile("first failure", settings(), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("first failure")
