"""`nats-bridge run`, which logs the reason if it does not start."""

import asyncio
import os
from pathlib import Path
from typing import Any

import click
import structlog

from nats_bridge.app.reload.file_watch import content_hash
from nats_bridge.cli.options import config_option
from nats_bridge.errors import BridgeError
from nats_bridge.observability.logs import configure_logs, is_json
from nats_bridge.settings import Log, load


@click.command("run")
@config_option
def run_command(config: Path) -> int:
    """Run the rules of a configuration until SIGTERM.

    On SIGTERM or Ctrl-C, the sidecar finishes messages in flight, then exits with 0.
    It reloads the configuration on SIGHUP, and when the file changes.

    \b
    Example:
      nats-bridge run -c config/republish-monitor.yaml
      BRIDGE_LOG__FORMAT=json nats-bridge run -c config/republish-monitor.yaml
    """
    seen = content_hash(config)  # hashed before reading, so a later write counts as a change
    try:
        settings = load(config)  # before the runtime is imported: a mistake in the file shows at once
    except BridgeError as error:
        given: Any = os.environ.get("BRIDGE_LOG__FORMAT")
        return _refuse(error, Log(format=given) if given in ("json", "console") else Log())

    from nats_bridge.app.process import run

    try:
        return asyncio.run(run(settings, config, seen))
    except BridgeError as error:
        return _refuse(error, settings.log)


def _refuse(error: BridgeError, wanted: Log) -> int:
    """Log the reason if logs are JSON, and return the exit code; otherwise raise the error again."""
    if not is_json(wanted):
        raise error
    configure_logs(wanted)
    log = structlog.get_logger("bridge.sidecar")
    log.error("sidecar.refused", code=error.code, reason=str(error))
    return error.exit_code
