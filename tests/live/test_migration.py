"""The migration that the documentation tells, run as it is told."""

from __future__ import annotations

from docs.record_migration import record


async def test_the_migration_in_the_documentation_loses_and_doubles_nothing() -> None:
    lines = await record()
    assert lines[-6:] == [
        "in ORDERS_EU       666",
        "  by the bridge    400",
        "  by the server    266",
        "missing            0",
        "double             0",
        "same order         yes",
    ]
