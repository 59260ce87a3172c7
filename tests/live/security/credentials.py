"""Every way to authenticate: the server's configuration for it, and the connection of a sidecar's."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # ships without types
import trustme

JETSTREAM = "jetstream: enabled"
PATIENCE = "timeout: 60"  # for each login: a server's own 2 s can be too short on a busy machine


def new_keys(kind: int, number: int) -> Any:
    """A pair of keys, the same for the same number."""
    return nkeys.from_seed(bytearray(seed_of(kind, number)))


def seed_of(kind: int, number: int) -> bytes:
    """Its seed."""
    return bytes(nkeys.encode_seed(hashlib.sha256(b"%d" % number).digest(), kind))


def public(keys: Any) -> str:
    """Its public key."""
    return str(keys.public_key.decode())


def jwt(issuer: Any, subject: str, name: str, nats: dict[str, Any], expires: int = 0) -> str:
    """A JWT as NATS has them."""

    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    claims = {"iat": int(time.time()), "iss": public(issuer), "sub": subject, "name": name, "nats": nats}
    claims |= {"exp": expires} if expires else {}
    claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
    head = f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{part(claims)}"
    return f"{head}.{base64.urlsafe_b64encode(issuer.sign(head.encode())).decode().rstrip('=')}"


class Operator:
    """An operator with one account, whose users come with credentials files."""

    def __init__(self) -> None:
        self._operator = new_keys(nkeys.PREFIX_BYTE_OPERATOR, 1)
        self._account = new_keys(nkeys.PREFIX_BYTE_ACCOUNT, 2)
        self._system = new_keys(nkeys.PREFIX_BYTE_ACCOUNT, 3)

    def config(self, *revoked: int) -> str:
        """The server's configuration; users with these numbers are refused."""
        unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        stores = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
        account = {
            "type": "account",
            "version": 2,
            "limits": {**unlimited, **stores, "wildcards": True},
            "revocations": {public(new_keys(nkeys.PREFIX_BYTE_USER, user)): int(time.time()) + 60 for user in revoked},
        }
        system = {"type": "account", "version": 2, "limits": {**unlimited, "wildcards": True}}
        accounts = {
            public(self._account): jwt(self._operator, public(self._account), "A", account),
            public(self._system): jwt(self._operator, public(self._system), "SYS", system),
        }
        operator = jwt(self._operator, public(self._operator), "O", {"type": "operator", "version": 2})
        preloaded = "\n".join(f"{key}: {text}" for key, text in accounts.items())
        return (
            f"operator: {operator}\nsystem_account: {public(self._system)}\n"
            f"resolver: MEMORY\nresolver_preload: {{\n{preloaded}\n}}\n"
        )

    def creds(self, user: int, expires: int = 0, permissions: Mapping[str, Any] | None = None) -> str:
        """A user's credentials file; `permissions` are its `pub` and `sub`, everything without them."""
        keys = new_keys(nkeys.PREFIX_BYTE_USER, user)
        limits = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, **(permissions or {})}
        token = jwt(self._account, public(keys), f"u{user}", limits, expires)
        seed = seed_of(nkeys.PREFIX_BYTE_USER, user).decode()
        return (
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )


@dataclass(slots=True)
class Files:
    """Writes secrets to files of a folder, and remembers every secret."""

    folder: Path
    secrets: list[str] = field(default_factory=list)

    def write(self, name: str, content: str, *secrets: str) -> str:
        """A file with secrets; its path."""
        path = self.folder / name
        path.write_text(content, "utf-8")
        self.secrets += secrets
        return str(path)

    def secret(self, name: str, secret: str) -> str:
        """A file that holds one secret."""
        return self.write(name, secret + "\n", secret)

    def certificate(self, name: str, certificate: trustme.LeafCert) -> dict[str, str]:
        """The `cert` and `key` of a TLS section."""
        key = certificate.private_key_pem.bytes().decode()
        chain = "".join(part.bytes().decode() for part in certificate.cert_chain_pems)
        body = "".join(key.split("-----")[2].split())
        return {"cert": self.write(f"{name}.pem", chain), "key": self.write(f"{name}.key", key, body[40:100])}

    def authority(self, name: str, authority: trustme.CA) -> str:
        """The `ca` of a TLS section."""
        return self.write(f"{name}-ca.pem", authority.cert_pem.bytes().decode())

    def context(self, **content: Any) -> dict[str, str]:
        """A connection by a context of the nats command line; its folder is this one."""
        contexts = self.folder / "nats" / "context"
        contexts.mkdir(parents=True, exist_ok=True)
        (contexts / "ctx.json").write_text(json.dumps(content), "utf-8")
        return {"context": "ctx"}


@dataclass(frozen=True, slots=True)
class Way:
    """A way to log in.

    Attributes:
        config: the server's configuration.
        connection: the connection's fields without `servers`.
        wrong: fields that the server refuses.
    """

    config: str
    connection: dict[str, Any]
    wrong: dict[str, Any]


Make = Callable[[Files, str], Way]
"""Makes a way; `Files` writes what it needs, the text is the server's address (`host:port`)."""


def password(files: Files, _: str) -> Way:
    """A user with a password from a file."""
    login = {"user": "me", "password_file": files.secret("password", "pw-S3cret/+&=")}
    wrong = {"user": "me", "password_file": files.secret("wrong", "pw-Wr0ng/+&=")}
    return Way(f'{JETSTREAM}\nauthorization {{user: me, password: "pw-S3cret/+&=", {PATIENCE}}}', login, wrong)


def token(files: Files, _: str) -> Way:
    """A token from a file."""
    login, wrong = files.secret("token", "tok-S3cret/+&="), files.secret("wrong", "tok-Wr0ng/+&=")
    return Way(
        f'{JETSTREAM}\nauthorization {{token: "tok-S3cret/+&=", {PATIENCE}}}',
        {"token_file": login},
        {"token_file": wrong},
    )


def nkey(files: Files, _: str) -> Way:
    """An NKey."""
    kind = nkeys.PREFIX_BYTE_USER
    known, other = seed_of(kind, 10).decode(), seed_of(kind, 11).decode()
    user = public(new_keys(kind, 10))
    return Way(
        f"{JETSTREAM}\nauthorization {{users: [{{nkey: {user}}}], {PATIENCE}}}",
        {"nkey_seed_file": files.secret("nkey", known)},
        {"nkey_seed_file": files.secret("wrong", other)},
    )


def creds(files: Files, _: str) -> Way:
    """A credentials file, on a server with an operator."""
    operator = Operator()

    def file(name: str, text: str) -> str:
        lines = text.splitlines()
        return files.write(name, text, lines[1], lines[5])

    return Way(
        f"{JETSTREAM}\n{operator.config(7)}",
        {"creds": file("u.creds", operator.creds(6))},
        {"creds": file("wrong.creds", operator.creds(7))},
    )


def _tls(files: Files, *more: str, authority: trustme.CA, clients: trustme.CA | None = None) -> str:
    own = files.certificate("server", authority.issue_cert("127.0.0.1"))
    said = [f'cert_file: "{own["cert"]}"', f'key_file: "{own["key"]}"', PATIENCE, *more]
    if clients is not None:
        said += [f'ca_file: "{files.authority("clients", clients)}"', "verify: true"]
    return f"{JETSTREAM}\ntls {{\n" + "\n".join(said) + "\n}"


def trusted(files: Files, _: str) -> Way:
    """TLS by an authority of one's own."""
    ours, others = trustme.CA(), trustme.CA()
    return Way(
        _tls(files, authority=ours),
        {"tls": {"ca": files.authority("ours", ours)}},
        {"tls": {"ca": files.authority("others", others)}},
    )


def client_certificate(files: Files, _: str) -> Way:
    """TLS on both sides."""
    ours = trustme.CA()
    ca = files.authority("ours", ours)
    mine, foreign = ours.issue_cert("client@example.com"), trustme.CA().issue_cert("client@example.com")
    return Way(
        _tls(files, authority=ours, clients=ours),
        {"tls": {"ca": ca, **files.certificate("client", mine)}},
        {"tls": {"ca": ca, **files.certificate("foreign", foreign)}},
    )


def tls_first(files: Files, _: str) -> Way:
    """TLS before the server says anything."""
    ours = trustme.CA()
    tls = {"ca": files.authority("ours", ours), "handshake_first": True}
    others = {"ca": files.authority("others", trustme.CA()), "handshake_first": True}
    return Way(_tls(files, "handshake_first: true", authority=ours), {"tls": tls}, {"tls": others})


def insecure(files: Files, _: str) -> Way:
    """TLS without a client certificate."""
    ours = trustme.CA()
    return Way(_tls(files, authority=ours), {"tls": {"insecure": True}}, {"tls": {}})


def context_password(files: Files, address: str) -> Way:
    """A context with a user and a password."""
    way = password(files, address)
    files.context(url=f"nats://{address}", user="me", password="pw-S3cret/+&=")
    return Way(way.config, {"context": "ctx"}, way.wrong)


def context_url(files: Files, address: str) -> Way:
    """A context whose URL holds user and password."""
    way = password(files, address)
    files.secrets.append("pw-S3cret%2F%2B%26%3D")
    return Way(way.config, files.context(url=f"nats://me:pw-S3cret%2F%2B%26%3D@{address}"), way.wrong)


def context_url_token(files: Files, address: str) -> Way:
    """A context whose URL holds a token."""
    way = token(files, address)
    files.secrets.append("tok-S3cret%2F%2B%26%3D")
    return Way(way.config, files.context(url=f"nats://tok-S3cret%2F%2B%26%3D@{address}"), way.wrong)


def context_creds(files: Files, address: str) -> Way:
    """A context with a credentials file."""
    way = creds(files, address)
    return Way(way.config, files.context(url=f"nats://{address}", creds=way.connection["creds"]), way.wrong)


def context_nkey(files: Files, address: str) -> Way:
    """A context with a seed file."""
    way = nkey(files, address)
    return Way(way.config, files.context(url=f"nats://{address}", nkey=way.connection["nkey_seed_file"]), way.wrong)


def context_tls_first(files: Files, address: str) -> Way:
    """A context with certificates, and TLS first."""
    ours = trustme.CA()
    mine = files.certificate("client", ours.issue_cert("client@example.com"))
    config = _tls(files, "handshake_first: true", authority=ours, clients=ours)
    login = files.context(url=f"tls://{address}", ca=files.authority("ours", ours), tls_first=True, **mine)
    return Way(config, login, {"tls": {"ca": files.authority("others", trustme.CA()), "handshake_first": True}})


WAYS: list[Make] = [
    password,
    token,
    nkey,
    creds,
    trusted,
    client_certificate,
    tls_first,
    insecure,
    context_password,
    context_url,
    context_url_token,
    context_creds,
    context_nkey,
    context_tls_first,
]

NOT_BEFORE_2_10: list[Make] = [tls_first, context_tls_first]
