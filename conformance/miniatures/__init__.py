"""Miniatures: engines that are wrong in one way each, to see that the suite finds every one of them out."""

from nats_bridge.conformance.miniatures.catching import MINIATURES, Caught, caught, failing, reported
from nats_bridge.conformance.miniatures.miniature import Miniature

__all__ = ["MINIATURES", "Caught", "Miniature", "caught", "failing", "reported"]
