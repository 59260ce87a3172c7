"""Secrets: read from files when a connection is made, never shown when something is printed."""

import base64
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

_Content = TypeVar("_Content")


class FieldError(Exception):
    """A field of a connection cannot be used.

    Attributes:
        field: the name, with a dot for members of `tls`.
        reason: the value, and a correct alternative.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class UnreadableFileError(FieldError):
    """A file cannot be read here. It may exist where the sidecar runs."""


class Held:
    """A secret that is kept in memory because a native context contains it as text."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self) -> str:
        """Return the secret."""
        return self._value

    def __repr__(self) -> str:
        return "Held(…)"


class _RenewedFile(Generic[_Content]):
    """A file that is read again for every connect, so a rotated secret is used after a reconnect.

    While the file is being replaced, its previous content is used.

    Args:
        field: the field that names the file, for messages.
        read: extracts the wanted part of the content; returns nothing if it is missing.
        wrong: the error text in that case.

    Raises:
        FieldError: the file cannot be read, or does not contain the wanted part.
    """

    __slots__ = ("_last", "_path", "_read")

    def __init__(self, field: str, path: Path, read: Callable[[bytes], _Content | None], wrong: str) -> None:
        self._path = path
        self._read = read
        found = read(check_readable(field, path))
        if not found:
            raise FieldError(field, f"{path}: {wrong}")
        self._last = found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r})"

    def _now(self) -> _Content:
        with contextlib.suppress(OSError):
            self._last = self._read(self._path.read_bytes()) or self._last
        return self._last


class FromFile(_RenewedFile[str]):
    """A secret in a file, without a line end after it."""

    __slots__ = ()

    def __init__(self, field: str, path: Path) -> None:
        super().__init__(field, path, _text, "the file is empty")

    def __call__(self) -> str:
        """Return the secret."""
        return self._now()


class CredsFile(_RenewedFile[tuple[bytes, bytes]]):
    """A credentials file. (nats-py, given the path, reads a file without a JWT endlessly.)"""

    __slots__ = ()

    public_key = ""
    """The public key by which the server identifies the client; empty with a JWT."""

    def __init__(self, path: Path) -> None:
        wrong = "is not a credentials file, which has a NATS USER JWT and a USER NKEY SEED part"
        super().__init__("creds", path, _creds_in, wrong)

    def jwt(self) -> bytearray:
        """Return the user's JWT."""
        return bytearray(self._now()[0])

    def __call__(self, nonce: str) -> bytes:
        """Sign the server's challenge, in base64."""
        return _signed(self._now()[1], nonce)


class SeedFile(_RenewedFile[bytes]):
    """A file with the seed of a user's NKey."""

    __slots__ = ()

    def __init__(self, field: str, path: Path) -> None:
        wrong = "does not contain the seed of a user's NKey (58 characters that begin with SU)"
        super().__init__(field, path, _seed_in, wrong)

    @property
    def public_key(self) -> str:
        """The public key."""
        return _public_key(self._now())

    def __call__(self, nonce: str) -> bytes:
        """Sign the server's challenge, in base64."""
        return _signed(self._now(), nonce)


def check_readable(field: str, path: Path) -> bytes:
    """Return the content of a file that `field` names.

    Raises:
        UnreadableFileError: the file does not exist, or cannot be read.
        FieldError: it is not a file, or not text.
    """
    try:
        content = path.read_bytes()
        content.decode()
    except FileNotFoundError:
        raise UnreadableFileError(field, f"{path}: no such file") from None
    except IsADirectoryError:
        raise FieldError(field, f"{path}: is a folder, not a file") from None
    except PermissionError:
        raise UnreadableFileError(field, f"{path}: cannot be read by this user") from None
    except OSError as error:
        raise UnreadableFileError(field, f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise FieldError(field, f"{path}: is not a text file") from None
    return content


def _text(content: bytes) -> str:
    try:
        return content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return ""


def _seed_in(content: bytes) -> bytes | None:
    seed = content.strip()
    return seed if _public_key(seed).startswith("U") else None


def _creds_in(content: bytes) -> tuple[bytes, bytes] | None:
    """Return the user's JWT and seed in a credentials file; None unless it has both."""
    parts: dict[bytes, bytes] = {}
    lines = iter(content.splitlines())
    for line in lines:
        for part in (b"NATS USER JWT", b"USER NKEY SEED"):
            if b"BEGIN " + part in line:
                parts[part] = next(lines, b"").strip()
    jwt, seed = parts.get(b"NATS USER JWT", b""), parts.get(b"USER NKEY SEED", b"")
    return (jwt, seed) if jwt and _public_key(seed).startswith("U") else None


def _public_key(seed: bytes) -> str:
    """Return the public key of a seed; empty if the seed is invalid."""
    import nkeys  # type: ignore[import-untyped]  # ships without types

    try:
        keys = nkeys.from_seed(bytearray(seed))
        public = str(keys.public_key.decode())
        keys.wipe()
    except Exception:  # nkeys raises several classes for an invalid seed, including binascii's
        return ""
    return public


def _signed(seed: bytes, nonce: str) -> bytes:
    import nkeys

    keys = nkeys.from_seed(bytearray(seed))
    signature = base64.b64encode(keys.sign(nonce.encode()))
    keys.wipe()
    return signature
