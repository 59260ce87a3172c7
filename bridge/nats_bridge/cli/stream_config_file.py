"""A native stream configuration from a file or from stdin."""

import json
import sys
from pathlib import Path
from typing import Any

from nats_bridge.errors import ConfigError
from nats_transforms.stream_config.json_text import read_json


def read_stream_config(file: str) -> Any:
    """Return the JSON value of a file, or of stdin for `-`. In an answer of the API, find the configuration.

    JSON values other than objects are returned too: the server's own error describes them better.

    Raises:
        ConfigError: the file cannot be read, or is not JSON.
    """
    shown = "stdin" if file == "-" else file
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); give a file, or - for stdin") from None
    try:
        config = read_json(raw)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{shown}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise ConfigError(f"{shown}: not valid JSON: nested too deeply") from None
    # The API's answers and `nats stream info --json` wrap the configuration.
    inner = config.get("config") if isinstance(config, dict) and "name" not in config else None
    return inner if isinstance(inner, dict) else config
