"""The catalogue: cases as data, by clause.

``case`` says what a case is, ``reading`` makes cases of the YAML files in this folder's subfolders, ``document`` is
their schema.
"""

from nats_bridge.conformance.catalogue.case import (
    Case,
    Difference,
    Expectation,
    ExpectedMessage,
    Level,
    Message,
    Place,
    Refusal,
    Transform,
)
from nats_bridge.conformance.catalogue.reading import CATALOGUE, checksum, read_catalogue, read_file, read_text

__all__ = [
    "CATALOGUE",
    "Case",
    "Difference",
    "Expectation",
    "ExpectedMessage",
    "Level",
    "Message",
    "Place",
    "Refusal",
    "Transform",
    "checksum",
    "read_catalogue",
    "read_file",
    "read_text",
]
