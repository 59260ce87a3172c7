"""`check STREAM.json`: a stream configuration in, a server's answer out."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.cli import main

CYCLE = {"name": "S", "subjects": ["a.>"], "republish": {"src": "a.>", "dest": "a.b.>"}}
GOOD = {"name": "S", "subjects": ["a.*"], "republish": {"src": "a.*", "dest": "b.$1"}}


@pytest.fixture
def validate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(config: Any, *arguments: str) -> tuple[int, str, str]:
        raw = config if isinstance(config, bytes) else json.dumps(config).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        with pytest.raises(SystemExit) as ended:
            main(["check", *(() if arguments and not arguments[0].startswith("--") else "-"), *arguments])
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out, printed.err

    return call


def test_a_good_configuration(validate: Any) -> None:
    assert validate(GOOD) == (0, "good: nats-server 2.15.3 accepts it\n", "")


def test_the_normalised_configuration_as_json(validate: Any) -> None:
    code, out, _ = validate({"name": "S", "subjects": ["a.*"], "republish": {"dest": "b.>"}}, "--json")
    reported = json.loads(out)
    assert (code, reported["ok"]) == (0, True)
    assert reported["config"]["republish"] == {"src": ">", "dest": "b.>"}
    assert reported["config"]["name"] == "S"


def test_a_refusal_is_the_servers(validate: Any) -> None:
    code, out, err = validate(CYCLE)
    assert (code, out) == (1, "")
    assert err == (
        "nats-server 2.15.3 rejects it: stream configuration for republish destination forms a cycle (500, 10052)\n"
    )
    code, out, err = validate(CYCLE, "-", "--json", "--dialect", "2.10.27")
    assert (code, err) == (1, "")
    assert json.loads(out) == {
        "ok": False,
        "code": 500,
        "err_code": 10052,
        "description": "stream configuration for republish destination forms a cycle",
    }


def test_what_an_old_server_refuses_a_new_one_may_take(validate: Any) -> None:
    config = {"name": "S", "subjects": ["a.*"], "republish": {"src": "c.*", "dest": "b.$1"}}
    assert validate(config, "--dialect", "2.15")[0] == 0
    code, _, err = validate(config, "--dialect", "2.9.10")
    assert code == 1
    assert "stream configuration for republish source is not valid subset of subjects" in err


def test_a_wrong_type_is_the_servers_10025(validate: Any) -> None:
    code, out, _ = validate({"name": "S", "republish": {"dest": "b", "headers_only": "x"}}, "--json")
    assert code == 1
    assert json.loads(out)["err_code"] == 10025


def test_json_that_is_no_object_is_the_servers_10025(validate: Any) -> None:
    code, out, _ = validate([], "--json")
    assert code == 1
    assert json.loads(out)["err_code"] == 10025


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"name": "S",\n  "subjects": [}', "stdin:2:16: not valid JSON: Expecting value\n"),
        (b"", "stdin:1:1: not valid JSON: Expecting value\n"),
        (b'{"name": "S", "max_msgs": NaN}', "stdin:1:27: not valid JSON: NaN is not a JSON value\n"),
        (
            b'\xef\xbb\xbf{"name": "S"}',
            "stdin:1:1: not valid JSON: it begins with a byte order mark; save it as UTF-8 without one\n",
        ),
        (b"[" * 100_000, "stdin: not valid JSON: nested too deeply\n"),
    ],
)
def test_what_is_no_json_exits_2_with_the_place(validate: Any, raw: bytes, said: str) -> None:
    assert validate(raw) == (2, "", said)


def test_a_byte_that_is_not_utf_8_is_a_replacement_character_as_in_servers(validate: Any) -> None:
    code, out, _ = validate(b'{"name": "S", "description": "caf\xe9", "metadata": {"\\ud800": "x"}}', "--json")
    config = json.loads(out)["config"]
    assert (code, config["description"], config["metadata"]) == (0, "caf\ufffd", {"\ufffd": "x"})


def test_a_file_and_a_wrapped_configuration(validate: Any, tmp_path: Path) -> None:
    file = tmp_path / "stream.json"
    file.write_text(json.dumps({"config": GOOD, "state": {"messages": 1}}), encoding="utf-8")
    assert validate(b"", str(file))[0] == 0
    file.write_text("nope", encoding="utf-8")
    assert validate(b"", str(file))[2] == f"{file}:1:1: not valid JSON: Expecting value\n"


def test_native_defects_are_warned_of(validate: Any) -> None:
    crash = {"name": "S", "subjects": ["a.*"], "republish": {"src": "a.*", "dest": "b.{{partition(0,1)}}"}}
    code, out, err = validate(crash, "--dialect", "2.10")
    assert (code, out) == (0, "good: nats-server 2.10.27 accepts it\n")
    assert err == (
        "warning: republish.dest: the server process ends at the first message that matches (crash-partition-zero)\n"
    )
    assert validate(crash, "--dialect", "2.15")[2] == ""
    reported = json.loads(validate({**GOOD, "republish": {"src": "a.*"}}, "--json")[1])
    assert reported["ok"] is True
    assert [warning["id"] for warning in reported["warnings"]] == ["republish-empty-destination"]
    assert reported["warnings"][0]["member"] == "republish.dest"


def test_an_update_of_a_configuration(validate: Any, tmp_path: Path) -> None:
    before = tmp_path / "info.json"
    before.write_text(json.dumps({"config": {**GOOD, "allow_msg_ttl": True}, "state": {}}), encoding="utf-8")
    update = ("-", "--previous", str(before), "--dialect", "2.12")
    assert validate(GOOD, *update) == (
        1,
        "",
        "nats-server 2.12.15 rejects the update: message TTL status can not be disabled (500, 10052)\n",
    )
    assert validate({**GOOD, "allow_msg_ttl": True}, *update) == (
        0,
        "good: nats-server 2.12.15 accepts the update\n",
        "",
    )
    code, out, _ = validate({**GOOD, "subject_delete_marker_ttl": 10**9}, *update, "--json")
    reported = json.loads(out)
    assert (code, reported["ok"], reported["config"]["allow_msg_ttl"], reported["config"]["allow_rollup_hdrs"]) == (
        0,
        *[True] * 3,
    )
    code, out, _ = validate({**GOOD, "name": "T"}, *update, "--json")
    assert (code, json.loads(out)["err_code"]) == (1, 10056)


@pytest.mark.parametrize(
    ("present", "said"),
    [
        ("[]", "not a stream configuration: give the response of STREAM.INFO"),
        ('{"error": {"code": 404}}', "not a stream configuration: give the response of STREAM.INFO"),
        (
            '{"name": "S", "max_msgs": "5"}',
            "not a valid stream on nats-server 2.15.3: invalid JSON: json: cannot unmarshal string into Go struct field"
            " StreamConfigRequest.StreamConfig.max_msgs of type int64",
        ),
        ("{", "1:2: not valid JSON: Expecting property name enclosed in double quotes"),
    ],
)
def test_a_present_configuration_that_is_none_exits_2(validate: Any, tmp_path: Path, present: str, said: str) -> None:
    file = tmp_path / "old.json"
    file.write_text(present, encoding="utf-8")
    code, out, err = validate(GOOD, "-", "--previous", str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"{file}:" if "Expecting" in said else f"--previous: {file}:")
    assert said in err


def test_stdin_is_read_once(validate: Any) -> None:
    code, _, err = validate(GOOD, "-", "--previous", "-")
    assert (code, err) == (
        2,
        "stdin can contain only one configuration: give a file for STREAM.json or for --previous\n",
    )
