"""Secrets and certificates of connections: read when they are needed, renewed, never shown."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # ships without types
import pytest
import trustme

from nats_bridge.errors import CredentialsError
from nats_bridge.settings import Connection, load
from nats_bridge.settings.connect_options import connect_options

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


def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued, ca, cert, key = authority.issue_cert("n"), tmp_path / "ca", tmp_path / "cert", tmp_path / "key"
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    options = _options(tls={"ca": ca, "cert": cert, "key": key, "handshake_first": True, "hostname": "n"})
    context = options["tls"]
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) >= 1
    assert (options["tls_handshake_first"], options["tls_hostname"]) == (True, "n")
    insecure = _options(tls={"insecure": True})["tls"]
    assert (insecure.verify_mode, insecure.check_hostname) == (ssl.CERT_NONE, False)


def test_a_file_that_cannot_be_used_ends_the_process(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CredentialsError) as caught:
        _options(token_file=file)
    assert str(caught.value) == f"connections.c.token_file: {file}: is not a text file"
    assert (caught.value.exit_code, caught.value.retriable) == (2, False)


def test_relative_paths_count_from_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "conf"
    folder.mkdir()
    _write(folder / "token", "t")
    file = _write(folder / "bridge.yaml", "connections: {default: {servers: [h], token_file: token}}\n" + RULES)
    monkeypatch.chdir(tmp_path)
    settings = load("conf/bridge.yaml", {})
    assert connect_options(settings.connections["default"])["token"]() == "t"
    assert load(file, {}).connections["default"].token_file == folder / "token"


def test_a_context_names_its_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    creds = _write(tmp_path / "u.creds", CREDS.format(seed=seed))
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    _write(folder / "ctx.json", json.dumps({"creds": str(creds)}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    options = connect_options(Connection(context="ctx"), "c")
    assert options["user_jwt_cb"]() == b"eyJ0eXAiOiJKV1Qi.e30.c2ln"
    assert seed not in repr(options)
