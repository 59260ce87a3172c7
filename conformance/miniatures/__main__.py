"""``python -m conformance.miniatures``: every miniature, what it does wrong, and the cases that caught it.

Exit code 1 where one was not caught by the case that it names.
"""

from __future__ import annotations

import asyncio
import sys

from conformance.catalogue import read_catalogue
from conformance.miniatures import MINIATURES, catching, failing


async def _main() -> int:
    cases = read_catalogue()
    good = True
    for miniature in MINIATURES:
        caught = await catching(miniature, cases)
        named = miniature.caught_by in caught
        good &= named
        others = len(caught) - named
        verdict = f"caught by {miniature.caught_by}" if named else f"NOT CAUGHT by {miniature.caught_by}"
        sys.stdout.write(f"{miniature.name}: {miniature.description}\n    {verdict}, and by {others} more\n")
    false_alarms = await failing(None, cases)
    for each in false_alarms:
        sys.stdout.write(f"the true engine fails {each}\n")
    sys.stdout.write(f"{len(MINIATURES)} miniatures, {len(cases)} cases\n")
    return 0 if good and not false_alarms else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
