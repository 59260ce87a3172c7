"""A worker's process: `python -P -m bridge.workers NUMBER FD`. Only a foreman starts it."""

from __future__ import annotations

import sys

from bridge.early_signals import listen_early

if __name__ == "__main__":
    listen_early()
    # Only now: this takes a good part of a second, and a signal in that time is to be a clean end.
    from bridge.workers.worker import main

    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
