"""Miniatures: engines that are wrong in one way each, to see that the suite finds every one of them out."""

from conformance.miniatures.catching import catching, failing
from conformance.miniatures.configurations import CONFIGURATIONS
from conformance.miniatures.copies import COPIES
from conformance.miniatures.functions import FUNCTIONS
from conformance.miniatures.headers import HEADERS
from conformance.miniatures.miniature import Miniature

__all__ = ["MINIATURES", "Miniature", "catching", "failing"]

MINIATURES: tuple[Miniature, ...] = (*HEADERS, *FUNCTIONS, *CONFIGURATIONS, *COPIES)
"""All of them."""
