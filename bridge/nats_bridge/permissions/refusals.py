"""Tells whether a user can do without a permission that a server refused."""

from functools import cached_property

from nats_bridge.client.permission_violations import refused_publication, refused_subscription
from nats_bridge.errors import BridgeError
from nats_bridge.permissions.granting import needs_of
from nats_bridge.permissions.need import Need, Way
from nats_bridge.settings import Settings
from nats_transforms.subject import is_subset


class Refusals:
    """The effects of refusals on one configuration."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def _needs(self) -> list[Need]:
        try:
            return needs_of(self.settings)
        except BridgeError:  # a connection's context cannot be read now
            return []

    def effect(self, connection: str, refusal: str) -> str:
        """Return the effect of a refusal on an optional permission; empty if the user needs the permission.

        Args:
            connection: the name of the connection whose user was refused.
            refusal: the server's text.
        """
        way: Way = "publish"
        subject = refused_publication(refusal)
        if not subject:
            way, subject = "subscribe", refused_subscription(refusal)
        if not subject:
            return ""
        fitting = [
            need
            for need in self._needs
            if need.connection == connection
            and need.way == way
            and is_subset(subject, need.subject.partition(" ")[0].encode())
        ]
        if not all(need.without for need in fitting):
            return ""
        return "; ".join(dict.fromkeys(f"{need.why}; without it {need.without}" for need in fitting))
