"""Whether a sidecar still copies, as far as its origins' servers can tell.

A copying sidecar leaves no name behind; what it has is a bound push consumer of a certain shape on every origin. The
same rule in another sidecar, or another rule that reads the same, has one as well: hence `--stopped`.
"""

from __future__ import annotations

from bridge.connection import Link
from bridge.jetstream_api import Json
from bridge.replay import ephemeral_config
from bridge.settings import Source

__all__ = ["copying_consumer"]

_SHAPE = {
    name: value
    for name, value in ephemeral_config("", filters=(), headers_only=False, direct=False).items()
    if name in ("ack_policy", "flow_control", "idle_heartbeat", "inactive_threshold", "mem_storage")
}


async def copying_consumer(link: Link, source: Source) -> str | None:
    """The name of a consumer by which somebody copies from an origin what an entry selects; None without one.

    Raises:
        ApiError: the server cannot be asked.
    """
    filters = {source.filter_subject} if source.filter_subject else {each.src for each in source.subject_transforms}
    for info in await link.api.consumers(source.name):
        if info.get("push_bound") and _copies(info["config"], filters):
            return str(info["name"])
    return None


def _copies(config: Json, filters: set[str]) -> bool:
    if config.get("durable_name") or config.get("headers_only"):
        return False
    if config.get("deliver_policy") != "by_start_sequence" or any(config.get(n) != v for n, v in _SHAPE.items()):
        return False
    asked = {config["filter_subject"]} if config.get("filter_subject") else set(config.get("filter_subjects") or ())
    return asked <= filters
