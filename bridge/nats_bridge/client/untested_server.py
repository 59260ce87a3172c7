"""Reports a server that this release was not compared with."""

from nats_transforms.tested_versions import stand_in


def untested(version: str) -> str | None:
    """Return a remark about a server that is newer than its line in `TESTED`, or of another line; None otherwise.

    Args:
        version: as the server reports it.
    """
    compared = stand_in(version)
    if compared is None:
        return None
    if version.split(".")[:2] != compared.split(".")[:2]:
        return (
            f"nats-server {version} is of a minor line that this release was not compared with, and is treated like"
            f" {compared}: look for a newer nats-bridge"
        )
    return (
        f"nats-server {version} is newer than {compared}, the newest of its line that this release was compared with,"
        f" and is treated like it: look for a newer nats-bridge, or compare both with"
        f" `nats-conform run --versions {compared},{version}`"
    )
