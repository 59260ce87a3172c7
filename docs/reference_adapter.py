"""The reference adapter: our engine behind the JSON-lines protocol of ``docs/conformance-protocol.md``.

``python docs/reference_adapter.py`` reads requests from stdin and writes answers to stdout, one line each; ``--offer
transform,republish`` announces less than everything. It is an example of an adapter, and is tested with the catalogue
like any other.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import Any, TypeAlias

from nats_conformance.catalogue.case import ExpectedRefusal, Json, TransformPlace
from nats_conformance.errors import SubjectError
from nats_conformance.implementations.engine_operations import Results, TransformsEngine
from nats_conformance.implementations.library_protocol import (
    CAPABILITIES,
    PROTOCOL,
    bytes_of,
    json_of_bytes,
    json_of_message,
    message_of,
)
from nats_conformance.observation import Decision, Stored
from nats_transforms.dialect import dialect
from nats_transforms.errors import EngineError
from nats_transforms.tested_versions import NEWEST_PATCHES

Request: TypeAlias = Mapping[str, Json]
Answer: TypeAlias = dict[str, Json]


def _stored_of(value: Json) -> Stored:
    return Stored(message_of(value), int(value["sequence"]), int(value["time_ns"]))


def _json_of_decision(decision: Decision) -> Answer:
    if decision.refusal is None:
        return {"config": dict(decision.config or {})}
    return {"refused": {name: value for name, value in asdict(decision.refusal).items() if value is not None}}


async def _transform(engine: TransformsEngine, request: Request) -> Answer:
    results = await engine.transform(
        bytes_of(request["src"]),
        bytes_of(request["dest"]),
        TransformPlace(request["place"]),
        [bytes_of(subject) for subject in request["subjects"]],
    )
    return _results(results)


async def _bare_transform(engine: TransformsEngine, request: Request) -> Answer:
    subjects = [bytes_of(subject) for subject in request["subjects"]]
    return _results(engine.bare_transform(bytes_of(request["src"]), bytes_of(request["dest"]), subjects))


def _results(results: Results) -> Answer:
    if isinstance(results, ExpectedRefusal):
        return _json_of_decision(Decision(refusal=results))
    return {"results": [None if each is None else json_of_bytes(each) for each in results]}


async def _stream_config(engine: TransformsEngine, request: Request) -> Answer:
    decision = await engine.decide(request["config"], request.get("previous"), request["streams"])
    return _json_of_decision(decision)


async def _republish(engine: TransformsEngine, request: Request) -> Answer:
    message = await engine.republish(
        request["stream"], request["republish"], _stored_of(request["message"]), request["last_sequence"]
    )
    return {"message": json_of_message(message)}


async def _sourcing(engine: TransformsEngine, request: Request) -> Answer:
    message = await engine.copy(
        request["entry"], _stored_of(request["message"]), bytes_of(request["identity"]), mirrors=request["mirror"]
    )
    return {"message": json_of_message(message)}


_OPERATIONS: Mapping[str, Callable[[TransformsEngine, Request], Coroutine[Any, Any, Answer]]] = {
    "transform": _transform,
    "bare_transform": _bare_transform,
    "stream_config": _stream_config,
    "republish": _republish,
    "sourcing": _sourcing,
}


class _Adapter:
    """Answers requests; one engine for each dialect that is asked for."""

    def __init__(self, offered: Sequence[str]) -> None:
        self._offered = offered
        self._engines: dict[str, TransformsEngine] = {}

    async def answer(self, request: Request) -> Answer:
        """Return the answer, without its id; errors are in it."""
        op = request["op"]
        if op == "hello":
            return {
                "protocol": PROTOCOL,
                "name": "nats-bridge transforms",
                "version": metadata.version("nats-bridge"),
                "dialects": [f"{major}.{minor}" for major, minor in NEWEST_PATCHES],
                "capabilities": list(self._offered),
            }
        if op == "bye":
            return {}
        operation = _OPERATIONS[op] if op in self._offered else None
        if operation is None:
            return {"error": f"no such operation: {op!r}"}
        try:
            return await operation(self._engine(request["dialect"]), request)
        except (EngineError, SubjectError, KeyError, TypeError, ValueError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _engine(self, version: str) -> TransformsEngine:
        if version not in self._engines:
            self._engines[version] = TransformsEngine(dialect(version))
        return self._engines[version]


def main(arguments: Sequence[str]) -> int:
    """Answer until ``bye`` or the end of the input; the exit code, 2 where the arguments are wrong."""
    offered: Sequence[str] = CAPABILITIES
    if arguments:
        offered = arguments[1].split(",") if len(arguments) == 2 and arguments[0] == "--offer" else ()
        if not offered or not set(offered) <= set(CAPABILITIES):
            sys.stderr.write(f"usage: reference_adapter [--offer {','.join(CAPABILITIES)}]\n")
            return 2
    adapter = _Adapter(offered)
    with asyncio.Runner() as runner:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            answer = {"id": request["id"], **runner.run(adapter.answer(request))}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
            if request["op"] == "bye":
                break
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
