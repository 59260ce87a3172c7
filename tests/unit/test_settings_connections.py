"""From a connection to what nats-py gets, and that secrets stay out of sight."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # ships without types
import pytest

from nats_bridge.errors import ConfigError, CredentialsError
from nats_bridge.settings import Connection, load
from nats_bridge.settings.connect_options import connect_options
from nats_bridge.settings.connections import check_server_url

RULES = "rules: [{name: a, kind: republish, stream: S, republish: {src: a, dest: b}}]\n"
CREDS = """-----BEGIN NATS USER JWT-----
eyJ0eXAiOiJKV1Qi.e30.c2ln
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""


@pytest.fixture
def seed() -> str:
    return str(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER).decode())


def _options(**fields: Any) -> dict[str, Any]:
    return connect_options(Connection.model_validate({"servers": ["nats://h:1"], **fields}), "c")


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_plain_connection() -> None:
    assert _options() == {
        "servers": ["nats://h:1"],
        "inbox_prefix": b"_INBOX",
        "connect_timeout": 5.0,
        "reconnect_max_wait": 5.0,
    }


def test_password_and_token_are_read_when_they_are_needed_and_never_shown(tmp_path: Path) -> None:
    file = _write(tmp_path / "secret", "hunter2 \n")
    options = _options(user="me", password_file=file)
    assert options["user"] == "me"
    assert options["password"]() == "hunter2 ", "only the line end does not belong to it"
    assert "hunter2" not in repr(options)
    _write(file, "rotated")
    assert options["password"]() == "rotated"
    file.unlink()
    assert options["password"]() == "rotated", "while the file is replaced, the last one known"
    options = _options(token_file=_write(file, "hunter2"))
    assert options["token"]() == "hunter2"
    assert "hunter2" not in repr(options)


def test_credentials_and_seed_go_by_path(tmp_path: Path, seed: str) -> None:
    creds = _write(tmp_path / "u.creds", CREDS.format(seed=seed))
    nkey = _write(tmp_path / "u.nk", seed + "\n")
    options = _options(creds=creds)
    assert options["user_jwt_cb"]() == b"eyJ0eXAiOiJKV1Qi.e30.c2ln"
    assert len(base64.b64decode(options["signature_cb"]("challenge"))) == 64
    assert options["signature_cb"].public_key == "", "the JWT says it"
    assert _options(nkey_seed_file=nkey)["signature_cb"].public_key.startswith("U")
    assert seed not in repr(_options(creds=creds)) + repr(_options(nkey_seed_file=nkey))


def test_inbox_prefix_and_timeout() -> None:
    options = _options(inbox_prefix="_INBOX_b.c", connect_timeout=0.5)
    assert (options["inbox_prefix"], options["connect_timeout"]) == (b"_INBOX_b.c", 0.5)


@pytest.mark.parametrize(
    ("context", "written", "prefix"),
    [
        ({"jetstream_domain": "leaf"}, {"domain": "leaf"}, "$JS.leaf.API"),
        ({"jetstream_api_prefix": "JSA.API"}, {"api_prefix": "JSA.API"}, "JSA.API"),
    ],
)
def test_the_api_of_a_domain_or_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: dict[str, str], written: dict[str, str], prefix: str
) -> None:
    assert _options(**written)["api_prefix"] == prefix
    assert _from_context(tmp_path, monkeypatch, context)["api_prefix"] == prefix
    other = _from_context(tmp_path, monkeypatch, {"jetstream_domain": "x"}, **written)
    assert other["api_prefix"] == prefix, "the connection's own wins"


def test_rotated_credentials_are_read_and_half_written_ones_are_not(tmp_path: Path, seed: str) -> None:
    other = str(nkeys.encode_seed(bytes(range(1, 33)), nkeys.PREFIX_BYTE_USER).decode())
    creds, nkey = tmp_path / "u.creds", _write(tmp_path / "u.nk", seed)
    options = _options(creds=_write(creds, CREDS.format(seed=seed)))
    signer = _options(nkey_seed_file=nkey)["signature_cb"]
    signed, known = options["signature_cb"]("n"), signer.public_key
    for text in ("", CREDS.partition("{seed}")[0], "-----BEGIN NATS USER JWT-----"):
        _write(creds, text)
        _write(nkey, text)
        assert options["user_jwt_cb"]() == b"eyJ0eXAiOiJKV1Qi.e30.c2ln"
        assert options["signature_cb"]("n") == signed
        assert signer.public_key == known
    creds.unlink()
    nkey.unlink()
    assert (options["signature_cb"]("n"), signer.public_key) == (signed, known)
    _write(creds, CREDS.format(seed=other).replace("e30", "e31"))
    _write(nkey, other)
    assert options["user_jwt_cb"]() == b"eyJ0eXAiOiJKV1Qi.e31.c2ln"
    assert options["signature_cb"]("n") == signer("n") != signed
    assert signer.public_key != known


# Self-signed, valid for a hundred years, trusted by no client.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUCbgPzhJIj6KAM6PTKQB+ldr5F1swCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjAyMjUwMTBaGA8yMTI2MTAyNzIyNTAx
MFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABLZU
7WMcsKj33t5fbMTzBNUEjP0re/KctAYvmrNNY0IEfRc0XFQq5IlPBSoYOivcPKN/
Z/JK4RIhO+k0Iid8Dv+jUzBRMB0GA1UdDgQWBBT01/csO54M9Rv9dc2CU0uO0Riy
IjAfBgNVHSMEGDAWgBT01/csO54M9Rv9dc2CU0uO0RiyIjAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIQDAfehN+zHSkkoo6zZnWv+vJ15mDjCe6p07
zyny3i8wXgIgD94nIyJmuV2d+4XgWEIc+V1I1PdPNKlYM7NI3gIxSTY=
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgPD0HKffph99Rl18B
zQTIooQccNYOmw3hP5D0PBSSRt2hRANCAAS2VO1jHLCo997eX2zE8wTVBIz9K3vy
nLQGL5qzTWNCBH0XNFxUKuSJTwUqGDor3Dyjf2fySuESITvpNCInfA7/
-----END PRIVATE KEY-----
"""


@pytest.fixture
def pem(tmp_path: Path) -> tuple[Path, Path]:
    return _write(tmp_path / "cert.pem", CERTIFICATE), _write(tmp_path / "key.pem", KEY)


def test_tls(pem: tuple[Path, Path]) -> None:
    cert, key = pem
    options = _options(tls={"ca": cert, "cert": cert, "key": key, "handshake_first": True, "hostname": "n"})
    context = options["tls"]
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) >= 1
    assert (options["tls_handshake_first"], options["tls_hostname"]) == (True, "n")
    insecure = _options(tls={"insecure": True})["tls"]
    assert (insecure.verify_mode, insecure.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize(
    ("fields", "content", "said"),
    [
        ({"creds": "F"}, None, "creds: F: no such file"),
        ({"creds": "F"}, "x", "creds: F: is no credentials file (needs a NATS USER JWT and a USER NKEY SEED part)"),
        ({"nkey_seed_file": "F"}, "SUAA", "nkey_seed_file: F: does not hold the seed of a user's NKey"),
        ({"nkey_seed_file": "F"}, "", "nkey_seed_file: F: does not hold the seed of a user's NKey"),
        ({"token_file": "F"}, "\n", "token_file: F: the file is empty"),
        ({"user": "u", "password_file": "F"}, None, "password_file: F: no such file"),
        ({"tls": {"ca": "F"}}, "no pem", "tls.ca: F: holds no certificate in PEM form"),
        ({"tls": {"cert": "F", "key": "F"}}, "no pem", "tls.key: F: is not the unencrypted PEM key of the certificate"),
        ({"tls": {"key": "F"}}, "x", "tls.key: needs 'cert' as well"),
    ],
)
def test_files_that_cannot_be_used(fields: dict[str, Any], content: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if content is not None:
        _write(file, content)
    given = json.loads(json.dumps(fields).replace('"F"', json.dumps(str(file))))
    with pytest.raises(CredentialsError) as caught:
        _options(**given)
    assert str(caught.value).startswith("connections.c." + said.replace("F", str(file)))
    assert (caught.value.exit_code, caught.value.retriable) == (2, False)


def test_a_folder_and_bytes_are_no_secret_files(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="is a folder, not a file"):
        _options(token_file=tmp_path)
    (tmp_path / "f").write_bytes(b"\xff\xfe")
    with pytest.raises(CredentialsError, match="is not a text file"):
        _options(token_file=tmp_path / "f")


def test_relative_paths_count_from_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "conf"
    folder.mkdir()
    _write(folder / "token", "t")
    file = _write(folder / "bridge.yaml", "connections: {default: {servers: [h], token_file: token}}\n" + RULES)
    monkeypatch.chdir(tmp_path)
    settings = load("conf/bridge.yaml", {})
    assert connect_options(settings.connections["default"])["token"]() == "t"
    assert load(file, {}).connections["default"].token_file == folder / "token"


# --- contexts of the nats command line


def _context(tmp_path: Path, content: Mapping[str, Any] | str, name: str = "ctx") -> dict[str, str]:
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    _write(folder / f"{name}.json", text)
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def _from_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Mapping[str, Any], **fields: Any
) -> dict[str, Any]:
    for key, value in _context(tmp_path, content).items():
        monkeypatch.setenv(key, value)
    return connect_options(Connection.model_validate({"context": "ctx", **fields}), "c")


def test_a_context_gives_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    creds = _write(tmp_path / "u.creds", CREDS.format(seed=seed))
    options = _from_context(
        tmp_path,
        monkeypatch,
        {
            "description": "a system",
            "url": "nats://h1:1,tls://h2:2",
            "creds": str(creds),
            "inbox_prefix": "_INBOX_me",
            "tls_first": True,
            "socks_proxy": "",
            "jetstream_domain": "",
        },
        connect_timeout=3,
    )
    assert options["servers"] == ["nats://h1:1", "tls://h2:2"]
    assert options["user_jwt_cb"]() == b"eyJ0eXAiOiJKV1Qi.e30.c2ln"
    assert (options["inbox_prefix"], options["connect_timeout"]) == (b"_INBOX_me", 3)
    assert options["tls_handshake_first"] is True


def test_a_context_without_url_is_the_local_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _from_context(tmp_path, monkeypatch, {})["servers"] == ["nats://127.0.0.1:4222"]


@pytest.mark.parametrize(
    ("content", "user", "password", "token"),
    [
        ({"user": "me", "password": "hunter2"}, "me", "hunter2", None),
        ({"token": "hunter2"}, None, None, "hunter2"),
        ({"url": "nats://me:hunter%32@h:1"}, "me", "hunter2", None),
        ({"url": "nats://hunter2@h:1"}, None, None, "hunter2"),
        ({"user": "hunter2"}, None, None, "hunter2"),
    ],
)
def test_secrets_of_a_context_are_not_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: dict[str, str],
    user: str | None,
    password: str | None,
    token: str | None,
) -> None:
    options = _from_context(tmp_path, monkeypatch, content)
    assert options.get("user") == user
    assert (options["password"]() if password else None) == password
    assert (options["token"]() if token else None) == token
    assert "hunter" not in repr(options)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"socks_proxy": "socks5://p"}, "'socks_proxy' is not supported by the bridge; write the connection out"),
        ({"nsc": "nsc://op/acc/user"}, "'nsc' is not supported by the bridge"),
        ({"jetstream_domain": "a.b"}, "'a.b' is not a JetStream domain"),
        ({"jetstream_api_prefix": "x."}, "'x.' cannot be put in front of requests"),
        (
            {"jetstream_domain": "hub", "jetstream_api_prefix": "x"},
            "'jetstream_domain' and 'jetstream_api_prefix' exclude each other",
        ),
        ({"jetstream_event_prefix": "x"}, "'jetstream_event_prefix' is not supported by the bridge"),
        ({"user_jwt": "eyJ"}, "'user_jwt' is not supported by the bridge"),
        ({"password": "op://vault/x"}, "'password' refers to op://, which the bridge cannot look up; give a file"),
        ({"creds": "nsc://op/acc/user"}, "'creds' refers to nsc://, which the bridge cannot look up; give a file"),
        ({"url": "ws://me:hunter2@h:1"}, "url: 'ws://…@h:1': WebSocket is not supported"),
        ({"url": "nats://a:b@h:1,nats://h:2"}, "url: all servers must have the same user and password"),
        ("{", "cannot be read as JSON"),
        ("[]", "must hold a JSON object"),
    ],
)
def test_contexts_that_cannot_be_honoured(tmp_path: Path, content: dict[str, str] | str, said: str) -> None:
    environ = _context(tmp_path, content)
    file = _write(tmp_path / "bridge.yaml", "connections: {default: {context: ctx}}\n" + RULES)
    with pytest.raises(ConfigError) as caught:
        load(file, environ)
    (line,) = caught.value.problems
    path = tmp_path / "nats" / "context" / "ctx.json"
    assert line.startswith(f"{file}:1:34: connections.default.context: {path}: {said}")
    assert "hunter2" not in line


def test_a_context_that_is_not_there_names_a_close_one(tmp_path: Path) -> None:
    environ = _context(tmp_path, {}, name="production")
    file = _write(tmp_path / "bridge.yaml", "connections: {default: {context: prodction}}\n" + RULES)
    with pytest.raises(ConfigError, match=r"no context 'prodction' in .*; did you mean 'production'\?"):
        load(file, environ)


def test_a_context_cannot_leave_its_folder(tmp_path: Path) -> None:
    environ = _context(tmp_path, {})
    _write(tmp_path / "nats" / "other.json", "{}")
    file = _write(tmp_path / "bridge.yaml", "connections: {default: {context: ../other}}\n" + RULES)
    with pytest.raises(ConfigError, match=r"no context '\.\./other'"):
        load(file, environ)


def test_a_missing_file_of_a_context_names_the_field_there(tmp_path: Path) -> None:
    environ = _context(tmp_path, {"creds": "/no/such.creds"})
    file = _write(tmp_path / "bridge.yaml", "connections: {default: {context: ctx}}\n" + RULES)
    with pytest.raises(ConfigError, match=r"context: ctx: creds: /no/such\.creds: no such file"):
        load(file, environ)


@pytest.mark.parametrize("url", ["h", "h:4222", "nats://h", "tls://[::1]:4222/", "nats://127.0.0.1:1"])
def test_servers_that_nats_py_takes(url: str) -> None:
    assert check_server_url(url) is None


@pytest.mark.parametrize(
    "url", ["", " ", "nats://", "nats://:4222", "nats://h:x", "nats://h:0", "nats://h:1/x", "na ts", "ws://h"]
)
def test_servers_that_cannot_be(url: str) -> None:
    assert check_server_url(url)
