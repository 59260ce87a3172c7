"""`python -m tests.simulation`: many seeds, or one again."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path

from tests.simulation.faults import Replay, faults_of


def main() -> int:
    """Run seeds. Return 1 if one of them broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first one")
    parser.add_argument("--seed", type=int, help="this one alone, with the end of its event log")
    parser.add_argument("--keep", type=faults_of, help="with --seed: the faults that happen, such as 3,7, or none")
    parser.add_argument("--turn", type=int, default=0, help="with --seed: the same in other interleavings")
    parser.add_argument("--minutes", type=float, default=1.0, help="virtual ones; seeds have faults for a half at most")
    parser.add_argument("--shrink", type=int, default=100, help="runs, at most, that look for fewer faults")
    parser.add_argument("--found", action="store_true", help="run what found.txt lists instead")
    parser.add_argument("--defect", help="put this one of defects.yaml back, and stop at the first seed that finds it")
    parser.add_argument("--digests", action="store_true", help="show the hash of each seed's event log")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    if given.defect:
        from tests.simulation.defects import put_back

        put_back(given.defect)
    from tests.simulation.scenario import Found, run_seed
    from tests.simulation.shrinking import Shrinking

    def show(found: Found) -> None:
        for violation in found.violations[:20]:
            print(f"  {violation}")
        print("  faults:", *found.faults, sep="\n    ")
        print(f"  again: make simulate {found.replay}", flush=True)

    alone, shrinking = given.seed is not None, Shrinking(given.shrink)
    runs = [Replay(seed, minutes=given.minutes) for seed in range(given.first, given.first + given.seeds)]
    if given.found:
        lines = Path(__file__).with_name("found.txt").read_text().splitlines()
        runs = [Replay.parse(line) for line in (each.split("#")[0] for each in lines) if line.strip()]
    elif alone:
        runs = [Replay(given.seed, given.keep, given.turn, given.minutes)]
    took, seconds, messages, failed = 0.0, 0.0, 0, 0
    gc.disable()  # nothing of a seed is collected: its process ends
    for run in runs:
        began = sum(os.times()[2:4])  # of the processes of seeds
        found = run_seed(run)
        took += sum(os.times()[2:4]) - began
        seconds, messages = seconds + found.seconds, messages + found.messages
        failed += bool(found.violations)
        if alone:
            print(*found.lines, sep="\n")
        if alone or found.violations or given.digests:
            print(f"{run}: {len(found.violations)} violations, event log {found.digest}", flush=True)
        if alone or found.violations:
            show(found)
        if found.violations and shrinking.left:
            smallest = shrinking.smallest(found)
            print(f"  with {len(smallest.faults)} of {len(found.faults)} faults (runs left: {shrinking.left}):")
            show(smallest)
        if found.violations and given.defect:
            runs = runs[: runs.index(run) + 1]
            print(f"found by {run}, in {len(runs)} seeds: {given.defect}")
            break
    print(
        f"{len(runs)} seeds, {failed} failed: {len(runs) / took:.1f} seeds and {seconds / took:.0f} simulated seconds"
        f" in a second of one processor, {messages} messages"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
