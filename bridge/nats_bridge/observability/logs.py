"""Structured logs on standard error: JSON for machines, coloured lines at a terminal."""

import logging
import sys

import structlog

from nats_bridge.observability.log_rate_limit import StormLimit
from nats_bridge.observability.recent_errors import remember
from nats_bridge.settings import Log


def is_json(log: Log) -> bool:
    """Return whether the log is for machines: `auto` means a terminal is for a person, and all else is not."""
    return log.format == "json" or (log.format == "auto" and not sys.stderr.isatty())


def configure_logs(log: Log) -> None:
    """Set up structlog for the process, from the configuration's `log` section."""
    level = logging.getLevelNamesMapping()[log.level.upper()]
    # nats-py logs through the standard library. Its errors also reach the bridge through callbacks, so keep only the
    # worst.
    logging.basicConfig(stream=sys.stderr, level=logging.CRITICAL)
    # Never with the values of variables: a traceback must not show a secret.
    console = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            remember,
            StormLimit(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(
                [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
                if is_json(log)
                else [console]
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
