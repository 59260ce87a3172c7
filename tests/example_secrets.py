"""The files that config/secured-connections.yaml names."""

from __future__ import annotations

from pathlib import Path

import nkeys  # type: ignore[import-untyped]  # ships without types
import trustme

from tests.live.security.credentials import Files, Operator, seed_of

USER = 41
"""The number of the operator's user that the credentials file is for."""

WEST_USER = 42
"""The number of the user with an NKey."""


def place_secrets(folder: Path) -> trustme.CA:
    """Write them; the authority that has signed, and can sign what a server needs."""
    folder.mkdir()
    authority, files = trustme.CA(), Files(folder)
    files.write("ca.pem", authority.cert_pem.bytes().decode())
    files.certificate("client", authority.issue_cert("bridge@example.com"))
    files.write("east.creds", Operator().creds(USER))
    files.secret("west.nk", seed_of(nkeys.PREFIX_BYTE_USER, WEST_USER).decode())
    return authority
