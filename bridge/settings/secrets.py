"""Secrets: read from files when a connection is made, never shown when something is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

__all__ = ["FieldError", "FromFile", "Held", "Secret", "check_creds", "check_readable", "check_seed"]


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
    """A secret in a file; read anew for every connect, so that a rotated one is used after a reconnect.

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


def check_creds(field: str, path: Path) -> None:
    """Whether a file is a credentials file, so that a mix-up shows before anything starts.

    Raises:
        FieldError: it cannot be read, or does not hold a user JWT and a seed.
    """
    content = check_readable(field, path)
    if b"BEGIN NATS USER JWT" not in content or b"BEGIN USER NKEY SEED" not in content:
        raise FieldError(field, f"{path}: is no credentials file (needs a NATS USER JWT and a USER NKEY SEED part)")


def check_seed(field: str, path: Path) -> None:
    """Whether a file holds the seed of a user's NKey.

    Raises:
        FieldError: it cannot be read, or holds something else.
    """
    import nkeys  # type: ignore[import-untyped]  # ships without types

    content = check_readable(field, path).strip()
    try:
        keys = nkeys.from_seed(bytearray(content))
        good = keys.public_key.startswith(b"U")
        keys.wipe()
    except Exception:  # whatever nkeys raises for what is no seed: several classes, among them binascii's
        good = False
    if not good:
        raise FieldError(field, f"{path}: does not hold the seed of a user's NKey (58 characters that begin with SU)")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").rstrip("\r\n")
