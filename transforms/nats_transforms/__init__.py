"""The engine: subject transforms, republish and header blocks exactly as in nats-server.

Pure functions over bytes, without I/O and with the standard library only. `subject` handles tokens and wildcards,
`dialect` the differences between server versions, `transform` compiles a source and a destination, `republish` turns a
stored message into the one that the server would send, `header_block` edits raw headers.
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
