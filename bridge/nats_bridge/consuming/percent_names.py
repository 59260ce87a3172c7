"""Refuses streams with `%` in their names on servers that mishandle their acknowledgements or reply subjects.

A server makes the reply subjects of a consumer from a format string that begins with the stream's name. Up to 2.9.15 it
also expands a `%` in the name. Later versions double the `%`. Up to 2.12.11 and 2.14.2 they also double it in the
subject on which they wait for acknowledgements, so these have no effect (tested with 2.9.10 to 2.15.3).
"""

from __future__ import annotations

from nats_bridge.errors import RuleRefusedError
from nats_transforms.dialect import server_dialect


def check_percent(server_version: str, place: str, stream: str, *, acknowledges: bool = False) -> None:
    """Check that a stream can be read, and its messages acknowledged, although a `%` is in its name.

    Args:
        server_version: the version of the stream's server.
        place: how the error begins.
        acknowledges: whether its consumer needs acknowledgements.

    Raises:
        RuleRefusedError: this server cannot do it.
    """
    if "%" not in stream:
        return
    server = server_dialect(server_version)
    if not server.reply_subjects_keep_percent:
        raise RuleRefusedError(
            f"{place}: server {server_version} cannot deliver messages of a stream with % in its name: upgrade it to"
            " 2.9.16 or newer, or copy the stream to one without"
        )
    if acknowledges and not server.percent_streams_take_acknowledgements:
        raise RuleRefusedError(
            f"{place}: acknowledgements have no effect on server {server_version}, because the stream has % in its"
            " name: upgrade it to 2.12.12, 2.14.3 or newer, or copy the stream to one without"
        )
