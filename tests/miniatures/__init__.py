"""Miniatures: engines that are wrong in one way each, to see that the suite finds every one of them out."""

from tests.miniatures.catching import MINIATURES, Caught, caught, failing
from tests.miniatures.miniature import Miniature

__all__ = ["MINIATURES", "Caught", "Miniature", "caught", "failing"]
