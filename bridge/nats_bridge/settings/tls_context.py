"""TLS of a connection: trusted authorities and the client certificate. The files are read again for every connect."""

import ssl
from pathlib import Path
from typing import Self

from nats_bridge.settings.connections import Tls
from nats_bridge.settings.secrets import FieldError, check_readable


class RenewedContext(ssl.SSLContext):
    """A context that reads its files again before every handshake, so that rotated certificates are used.

    While a file is being replaced, its previous content is used. Authorities once trusted stay trusted until the
    process ends.
    """

    _files: Tls

    @classmethod
    def of(cls, tls: Tls, prefix: str) -> Self:
        """Return a context as a connection wants it.

        Args:
            tls: the settings of the connection.
            prefix: what to put in front of field names in messages.

        Raises:
            FieldError: a file cannot be used.
        """
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags = ssl.create_default_context().verify_flags
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        context._files = tls
        context._load(prefix)
        if tls.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def renew(self) -> None:
        """Read the files again, if they are usable."""
        try:
            self._load("")
        except FieldError:
            return

    def _load(self, prefix: str) -> None:
        tls = self._files
        if bool(tls.cert) != bool(tls.key):
            present, absent = ("cert", "key") if tls.cert else ("key", "cert")
            raise FieldError(prefix + present, f"also needs '{absent}'")
        if tls.ca:
            check_readable(prefix + "ca", tls.ca)
            try:
                self.load_verify_locations(cafile=str(tls.ca))
            except ssl.SSLError:
                raise FieldError(prefix + "ca", f"{tls.ca}: contains no certificate in PEM format") from None
        if tls.cert and tls.key:
            check_readable(prefix + "cert", tls.cert)
            check_readable(prefix + "key", tls.key)
            self._load_own(tls.cert, tls.key, prefix)

    def _load_own(self, cert: Path, key: Path, prefix: str) -> None:
        try:
            # Without a password given, OpenSSL would stop and ask for one at the terminal.
            self.load_cert_chain(str(cert), str(key), password=lambda: b"")
        except (ssl.SSLError, OSError, ValueError):
            raise FieldError(
                prefix + "key", f"{key}: is not the unencrypted PEM key of the certificate in {cert}"
            ) from None
