"""YAML whose values remember where they were written, for errors that name the place."""

from nats_bridge.marked_yaml.document import LINE_BREAK, Document, DocumentError, Mark, Path, compose

__all__ = ["LINE_BREAK", "Document", "DocumentError", "Mark", "Path", "compose"]
