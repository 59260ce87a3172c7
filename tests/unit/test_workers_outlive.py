"""A worker whose event loop is held up does not outlive its foreman for ever."""

from __future__ import annotations

import asyncio
import socket
import sys

HELD_UP = """
import sys, time
from threading import Thread
from bridge.workers import worker
worker._ALONE = 0.0
Thread(target=worker._outlive, args=(int(sys.argv[1]),), daemon=True).start()
print("held up", flush=True)
while True:
    time.sleep(60)
"""


async def test_a_worker_that_is_held_up_ends_after_its_foreman() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HELD_UP, str(theirs.fileno())),
            pass_fds=(theirs.fileno(),),
            stdout=asyncio.subprocess.PIPE,
        )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"held up\n"
        ours.sendall(b"a question is no end\n")
        assert process.returncode is None
        ours.close()
        assert await process.wait() == 1
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
