"""Tells whether a user can do without a permission that a server refused."""

from __future__ import annotations

from nats_bridge.client.permission_violations import refused_publication, refused_subscription
from nats_bridge.errors import BridgeError
from nats_bridge.permissions.granting import Grant, grants_of
from nats_bridge.permissions.need import Way
from nats_bridge.settings import Settings
from nats_transforms.subject import is_subset


def effect_of(settings: Settings, connection: str, refusal: str) -> str:
    """Return the effect of a refusal on an optional permission; empty if the user needs the permission.

    Args:
        settings: the configuration.
        connection: the name of the connection whose user was refused.
        refusal: the server's text.
    """
    way: Way = "publish"
    subject = refused_publication(refusal)
    if not subject:
        way, subject = "subscribe", refused_subscription(refusal)
    if not subject:
        return ""
    try:
        grants = next((each.grants for each in grants_of(settings) if each.connection == connection), ())
    except BridgeError:  # its context cannot be read now
        return ""
    fitting = [grant for grant in grants if grant.way == way and _allows(grant, subject)]
    if not fitting or not all(grant.optional for grant in fitting):
        return ""
    purposes = ", ".join(why for why, _ in fitting[0].reasons)
    return f"{purposes}; without it {fitting[0].without}"


def _allows(grant: Grant, subject: bytes) -> bool:
    return is_subset(subject, grant.subject.partition(" ")[0].encode())
