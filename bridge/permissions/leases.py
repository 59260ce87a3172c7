"""What the leases of replicas need."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.permissions.need import Need, api_subject, listen, write
from nats_bridge.bridge.rules.leadership.lease_store import Bucket, lease_subject
from nats_bridge.bridge.settings import Settings

__all__ = ["lease_needs"]


def lease_needs(settings: Settings) -> Iterator[Need]:
    """The needs of the sidecar and its rules where there may be replicas; none where there are none."""
    leases = settings.leadership
    if leases is None:
        return
    connection, bucket = leases.connection, Bucket(leases.bucket)
    subject = lease_subject(bucket.name, settings.name, "*")
    yield write(connection, subject, "takes, renews and gives back leases")
    yield write(connection, api_subject("STREAM.INFO", bucket.stream), "looks for the bucket of the leases")
    yield write(connection, api_subject("STREAM.MSG.GET", bucket.stream), "reads leases")
    if leases.create:
        yield write(
            connection,
            api_subject("STREAM.CREATE", bucket.stream),
            "creates the bucket of the leases",
            without="the bucket must exist, and is not recreated when it is deleted",
        )
    yield listen(
        connection,
        subject,
        "receives the release of a lease, and with share the rules that other replicas lead",
        without="a clean stop of another replica is noticed up to a fifth of ttl later; share has no effect",
    )
