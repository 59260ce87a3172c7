"""`python -m tests.simulation`: many seeds, or one again."""

from __future__ import annotations

import argparse
import gc
import os
import sys


def _processor_time() -> float:
    """Seconds that the processes of seeds have taken so far."""
    times = os.times()
    return times.children_user + times.children_system


def main() -> int:
    """Run seeds; 1 if one of them broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first one")
    parser.add_argument("--seed", type=int, help="this one alone, with the end of its event log")
    parser.add_argument("--minutes", type=float, default=1.0, help="virtual minutes of faults of each seed")
    parser.add_argument("--digests", action="store_true", help="show the hash of each seed's event log")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    from tests.simulation.scenario import Found, run_seed

    def show(found: Found) -> None:
        for violation in found.violations[:20]:
            print(f"  {violation}")
        print("  faults:", *found.faults, sep="\n    ")
        print(f"  again: make simulate SEED={found.seed}", flush=True)

    alone = arguments.seed is not None
    seeds = [arguments.seed] if alone else range(arguments.first, arguments.first + arguments.seeds)
    began, seconds, messages, failed = _processor_time(), 0.0, 0, 0
    gc.disable()  # nothing of a seed is collected: its process ends
    for seed in seeds:
        found = run_seed(seed, arguments.minutes)
        seconds += found.seconds
        messages += found.messages
        failed += bool(found.violations)
        if alone:
            print(*found.lines, sep="\n")
        if alone or found.violations or arguments.digests:
            print(f"seed {seed}: {len(found.violations)} violations, event log {found.digest}", flush=True)
        if alone or found.violations:
            show(found)
    took = _processor_time() - began
    print(
        f"{len(seeds)} seeds, {failed} failed: {len(seeds) / took:.1f} seeds and {seconds / took:.0f} simulated seconds"
        f" in a second of one processor, {messages} messages"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
