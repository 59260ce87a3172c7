"""Commands that end by themselves, as processes of their own."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

from tests.live.until import LIMIT

__all__ = ["Ran", "command"]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command printed and ended with."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON that it printed, when all was well."""
        assert self.code == 0, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found


async def command(*arguments: str) -> Ran:
    """Run `nats-bridge` with these arguments to its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bridge", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())
