"""A connection that is lost while it is closed: nats-py's close must come to its end, or it leaves tasks behind."""

import asyncio
from typing import Any

import pytest

from nats_bridge.client.nats_py import errors
from nats_bridge.client.wide_transport import WideTransport
from nats_bridge.client.wire import WireClient


class LostWriter:
    """A writer whose connection was lost for this reason."""

    def __init__(self, reason: OSError) -> None:
        self.reason = reason

    def is_closing(self) -> bool:
        return True

    async def drain(self) -> None:
        raise self.reason


def transport_with(writer: Any) -> WideTransport:
    transport = WideTransport(lambda chunk: chunk)
    transport._io_writer = writer
    return transport


LOST = [ConnectionResetError("reset"), TimeoutError("timed out"), OSError(113, "No route to host")]


@pytest.mark.parametrize("reason", LOST, ids=lambda reason: type(reason).__name__)
def test_a_loss_does_not_end_a_close_half_way(reason: OSError) -> None:
    transport = transport_with(LostWriter(reason))
    transport.is_left = True
    asyncio.run(transport.drain())


@pytest.mark.parametrize("reason", LOST, ids=lambda reason: type(reason).__name__)
def test_a_loss_reaches_those_who_still_write(reason: OSError) -> None:
    transport = transport_with(LostWriter(reason))
    with pytest.raises(type(reason)):
        asyncio.run(transport.drain())


async def test_a_reconnect_ends_the_tasks_of_one_that_was_lost() -> None:
    client = WireClient()
    left = [asyncio.create_task(asyncio.sleep(3600)) for _ in range(3)]
    client._reading_task, client._ping_interval_task, client._flusher_task = left
    with pytest.raises(errors.Error):  # it has no server
        await client._process_connect_init()
    assert all(task.cancelled() for task in left)
