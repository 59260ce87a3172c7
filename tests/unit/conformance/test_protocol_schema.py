"""The published schema of the JSON-lines protocol describes the lines that suite and adapter exchange."""

import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.implementations.library import LibrarySubject
from nats_conformance.implementations.library_process import LibraryProcess
from nats_conformance.implementations.library_protocol import CAPABILITIES, PROTOCOL, protocol_schema
from tests.unit.conformance.playing import opened, outcomes

ADAPTER = Path(__file__).parents[3] / "docs" / "reference_adapter.py"
SCHEMA = protocol_schema()


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$schema": SCHEMA["$schema"], "$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{name}"})


def test_the_schema_is_valid_and_of_this_version() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"].endswith(f":{PROTOCOL}")
    for op in (*CAPABILITIES, "hello", "bye"):
        assert {f"{op}-request", f"{op}-answer"} <= SCHEMA["$defs"].keys()


@pytest.mark.parametrize("offer", ["", "bare_transform"])
async def test_exchanged_lines_have_the_described_form(offer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ops: set[str] = set()
    ask = LibraryProcess.ask

    async def checked(self: LibraryProcess, op: str, limit: float, **members: Any) -> dict[str, Any]:
        ops.add(op)
        validator("request").validate({"id": 1, "op": op, **members})
        answer = await ask(self, op, limit, **members)
        validator(f"{op}-answer").validate(answer)
        return answer

    monkeypatch.setattr(LibraryProcess, "ask", checked)
    command = (sys.executable, str(ADAPTER), *(("--offer", offer) if offer else ()))
    subject = LibrarySubject(command, "2.15.1")
    async with opened(subject):
        _, wrong = await outcomes(subject, read_catalogue()[::8])
    assert wrong == []
    assert ops == {"hello", "bye"} | ({offer} if offer else set(CAPABILITIES) - {"bare_transform"})


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("request", {"id": 1, "op": "hello", "protocol": 2, "suite": "x"}),
        ("request", {"id": 1, "op": "transform", "dialect": "2.15.3", "src": "a", "dest": "b", "subjects": []}),
        ("request", {"id": 1, "op": "delete"}),
        ("transform-answer", {"id": 1, "results": [7]}),
        ("transform-answer", {"id": 1}),
        ("transform-answer", {"results": []}),
        ("republish-answer", {"id": 1, "message": {"headers": ""}}),
        ("hello-answer", {"id": 1, "protocol": 1, "name": "a", "dialects": [], "capabilities": []}),
    ],
)
def test_wrong_lines_are_refused(name: str, line: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        validator(name).validate(line)
