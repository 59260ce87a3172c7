"""The engine: subject transforms, republish and header blocks exactly as in nats-server.

Pure functions over bytes, standard library only, no input or output. ``subject`` knows tokens and wildcards,
``dialect`` what holds since which server version, ``transform`` compiles a source and a destination,
``republish`` turns a stored message into the one the server would send, ``header_block`` edits raw headers.
"""

from nats_transforms.dialect import NEWEST, Dialect, dialect
from nats_transforms.errors import EngineError, StreamConfigError, TransformError, UnknownDialectError
from nats_transforms.explanation import Explanation
from nats_transforms.transform import Transform, compile_mapping, compile_transform

__all__ = [
    "NEWEST",
    "Dialect",
    "EngineError",
    "Explanation",
    "StreamConfigError",
    "Transform",
    "TransformError",
    "UnknownDialectError",
    "compile_mapping",
    "compile_transform",
    "dialect",
]
