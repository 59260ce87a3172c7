"""The command `nats-bridge`.

`main` is the console entry. Every command lives in a module of its own that is imported only when it is
used, so that `explain` does not pay for what `run` needs.
"""

from __future__ import annotations

from bridge.cli.entry import main

__all__ = ["main"]
