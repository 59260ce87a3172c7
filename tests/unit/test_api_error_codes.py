"""Every error code of every server is in the table, as the server names it."""

import json
from pathlib import Path

from nats_bridge import api_error_codes
from nats_bridge.api_error_codes import CLASSES, class_of
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.errors import ApiError
from nats_transforms.tested_versions import TESTED_VERSIONS

RECORD = json.loads(Path("tests/data/api_error_codes.json").read_text("utf-8"))
CODES = {int(code): error for code, error in RECORD["codes"].items()}


def test_the_record_has_the_tested_servers() -> None:
    assert set(TESTED_VERSIONS) <= set(RECORD["versions"])


def test_every_code_of_every_server_is_classified_once() -> None:
    lines = api_error_codes._TABLE.split()[::3]
    assert [int(code) for code in lines] == sorted(CODES)
    assert CLASSES.keys() == CODES.keys()


def test_the_table_has_the_servers_names() -> None:
    lines = api_error_codes._TABLE.split()
    for code, name in zip(lines[::3], lines[2::3], strict=True):
        assert CODES[int(code)]["constant"].startswith(f"JS{name}")


def test_unavailable_and_too_many_are_passing_unless_they_never_end() -> None:
    unavailable = {code for code, error in CODES.items() if error["code"] in (429, 503)}
    assert {code for code in unavailable if class_of(code) != "passing"} == {10036}  # not supported in clusters


def test_a_code_of_a_newer_server_is_passing() -> None:
    assert class_of(19999) == "passing"
    assert ApiError("", http_code=400, err_code=19999, description="").passing
    assert PubAck.parse(b"", b'{"error": {"code": 400, "err_code": 19999}}').kind == "later"


def test_requests_and_publications_follow_the_table() -> None:
    for code, error in CODES.items():
        passing = class_of(code) == "passing"
        assert ApiError("", http_code=error["code"], err_code=code, description="").passing == passing, code
        answer = json.dumps({"error": {"code": error["code"], "err_code": code}, "stream": "S", "seq": 0})
        assert (PubAck.parse(b"", answer.encode()).kind == "later") == passing, code


def test_an_error_without_a_code() -> None:
    """No answer has none, and neither has one that is not a stream's."""
    assert not ApiError("", http_code=403, description="permissions violation").passing
    assert ApiError("", description="timeout", retriable=True).passing
    assert ApiError("", http_code=503, description="").passing
