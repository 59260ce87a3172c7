"""Validates native stream configurations as a server of a chosen version does, with its error texts.

`validate` returns the configuration as the server sends it back, or raises its refusal. `examine` adds warnings about
accepted settings that do harm. All are pure functions over JSON values; `read_json` reads them from a text like the
server.
"""

from nats_transforms.stream_config.defects import ConfigWarning
from nats_transforms.stream_config.json_text import read_json
from nats_transforms.stream_config.validation import Accepted, Sources, examine, validate

__all__ = ["Accepted", "ConfigWarning", "Sources", "examine", "read_json", "validate"]
