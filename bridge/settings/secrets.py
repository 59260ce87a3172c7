"""Secrets: read from files when a connection is made, never shown when something is printed."""

from __future__ import annotations

import base64
import contextlib
from pathlib import Path
from typing import Protocol

__all__ = ["CredsFile", "FieldError", "FromFile", "Held", "Secret", "SeedFile", "Signer", "check_readable"]


class FieldError(Exception):
    """A field of a connection cannot be used.

    Attributes:
        field: its name, with dots for what is inside `tls`.
        reason: the value, and what would be right.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class Secret(Protocol):
    """Something that gives a secret when called, the form in which nats-py takes passwords and tokens."""

    def __call__(self) -> str:
        """The secret."""


class Held:
    """A secret that is kept in memory because a native context holds it as text."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self) -> str:
        """The secret."""
        return self._value

    def __repr__(self) -> str:
        return "Held(…)"


class FromFile:
    """A secret in a file; read again for every connect, so that a rotated one is used after a reconnect.

    Args:
        field: the field that names the file, for messages.
        path: the file; a line end after the secret does not count.

    Raises:
        FieldError: the file cannot be read, or is empty.
    """

    __slots__ = ("_last", "_path")

    def __init__(self, field: str, path: Path) -> None:
        self._path = path
        check_readable(field, path)
        self._last = _read(path)
        if not self._last:
            raise FieldError(field, f"{path}: the file is empty")

    def __call__(self) -> str:
        """The secret; the last one known while the file is being replaced."""
        try:
            self._last = _read(self._path) or self._last
        except (OSError, UnicodeDecodeError):
            return self._last
        return self._last

    def __repr__(self) -> str:
        return f"FromFile({str(self._path)!r})"


def check_readable(field: str, path: Path) -> bytes:
    """The content of a file that `field` names.

    Raises:
        FieldError: it does not exist, is no file, may not be read, or is no text.
    """
    try:
        content = path.read_bytes()
        content.decode()
    except FileNotFoundError:
        raise FieldError(field, f"{path}: no such file") from None
    except IsADirectoryError:
        raise FieldError(field, f"{path}: is a folder, not a file") from None
    except PermissionError:
        raise FieldError(field, f"{path}: may not be read by this user") from None
    except OSError as error:
        raise FieldError(field, f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise FieldError(field, f"{path}: is not a text file") from None
    return content


class Signer(Protocol):
    """What signs a server's challenge for a connection, as nats-py calls it."""

    def __call__(self, nonce: str) -> bytes:
        """The signature, in base64."""

    @property
    def public_key(self) -> str:
        """The key by which the server knows us, if it does not know us by a JWT; else empty."""


class CredsFile:
    """A credentials file: read again for every connect, so that a rotated one is used after a reconnect.

    While the file is being replaced, what it held last counts. (nats-py, given the path, reads a file without a JWT
    endlessly.)

    Args:
        field: the field that names the file, for messages.
        path: the file.

    Raises:
        FieldError: it cannot be read, or does not hold a user JWT and a seed.
    """

    __slots__ = ("_last", "_path")

    public_key = ""

    def __init__(self, field: str, path: Path) -> None:
        self._path = path
        found = _creds_in(check_readable(field, path))
        if found is None:
            raise FieldError(field, f"{path}: is no credentials file (needs a NATS USER JWT and a USER NKEY SEED part)")
        self._last = found

    def jwt(self) -> bytearray:
        """The user's JWT."""
        self._look()
        return bytearray(self._last[0])

    def __call__(self, nonce: str) -> bytes:
        """Sign the server's challenge."""
        self._look()
        return _signed(self._last[1], nonce)

    def __repr__(self) -> str:
        return f"CredsFile({str(self._path)!r})"

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            self._last = _creds_in(self._path.read_bytes()) or self._last


class SeedFile:
    """A file with the seed of a user's NKey: read again for every connect, like `CredsFile`.

    Args:
        field: the field that names the file, for messages.
        path: the file.

    Raises:
        FieldError: it cannot be read, or holds something else.
    """

    __slots__ = ("_last", "_path")

    def __init__(self, field: str, path: Path) -> None:
        self._path = path
        self._last = check_readable(field, path).strip()
        if not _public_key(self._last).startswith("U"):
            raise FieldError(
                field, f"{path}: does not hold the seed of a user's NKey (58 characters that begin with SU)"
            )

    @property
    def public_key(self) -> str:
        """The public key."""
        self._look()
        return _public_key(self._last)

    def __call__(self, nonce: str) -> bytes:
        """Sign the server's challenge."""
        self._look()
        return _signed(self._last, nonce)

    def __repr__(self) -> str:
        return f"SeedFile({str(self._path)!r})"

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            content = self._path.read_bytes().strip()
            if _public_key(content).startswith("U"):
                self._last = content


def _creds_in(content: bytes) -> tuple[bytes, bytes] | None:
    """The user's JWT and seed in a credentials file, None if it does not hold both."""
    parts: dict[bytes, bytes] = {}
    lines = iter(content.splitlines())
    for line in lines:
        for part in (b"NATS USER JWT", b"USER NKEY SEED"):
            if b"BEGIN " + part in line:
                parts[part] = next(lines, b"").strip()
    jwt, seed = parts.get(b"NATS USER JWT", b""), parts.get(b"USER NKEY SEED", b"")
    return (jwt, seed) if jwt and _public_key(seed).startswith("U") else None


def _public_key(seed: bytes) -> str:
    """The public key to a seed; empty if it is none."""
    import nkeys  # type: ignore[import-untyped]  # ships without types

    try:
        keys = nkeys.from_seed(bytearray(seed))
        public = str(keys.public_key.decode())
        keys.wipe()
    except Exception:  # whatever nkeys raises for what is no seed: several classes, among them binascii's
        return ""
    return public


def _signed(seed: bytes, nonce: str) -> bytes:
    import nkeys

    keys = nkeys.from_seed(bytearray(seed))
    signature = base64.b64encode(keys.sign(nonce.encode()))
    keys.wipe()
    return signature


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").rstrip("\r\n")
