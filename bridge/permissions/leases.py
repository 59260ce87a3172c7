"""What the leases need by which replicas agree on who works on a rule."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.leadership.lease_store import Bucket, lease_subject
from bridge.permissions.need import Need, api_subject, listen, write
from bridge.settings import LeadershipSettings

__all__ = ["lease_needs"]


def lease_needs(wanted: LeadershipSettings, sidecar: str) -> Iterator[Need]:
    """The needs of the connection on which the bucket is."""
    connection, stream = wanted.connection, Bucket(wanted.bucket).stream
    leases = lease_subject(wanted.bucket, sidecar, "*")
    yield write(connection, leases, "takes, renews and gives back leases")
    yield write(connection, api_subject("STREAM.MSG.GET", stream), "reads leases")
    yield write(connection, api_subject("STREAM.INFO", stream), "sees whether the bucket of leases is fit")
    yield listen(
        connection,
        leases,
        "hears that a lease is given back",
        without="a clean stop is noticed a little later",
    )
    if wanted.create:
        yield write(
            connection,
            api_subject("STREAM.CREATE", stream),
            "makes the bucket of leases",
        )
