"""The recorded answers to stream configurations are what servers answer today, so that the records cannot rot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nats_conformance.native_servers.versions import numbers
from tests.live.servers.stream_config_answers import ask, difference
from tests.live.shared_servers import Servers

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize("file", ["stream_config_cases.json", "stream_config_texts.json"])
async def test_servers_answer_as_recorded(twin_version: str, native_server: Servers, file: str) -> None:
    document = json.loads((DATA / file).read_text("utf-8"))
    cases = document["cases"]
    # A version that was not recorded must answer as the one before it.
    version = max((each for each in document["versions"] if numbers(each) <= numbers(twin_version)), key=numbers)
    base = document["base"][version]
    async with native_server(twin_version) as server:
        bare, *answers = await ask(server, [{"config": {"name": "S"}}, *cases])
    assert bare == {"config": base}
    different = {
        case["id"]: (answer, recorded(case, version))
        for case, answer in zip(cases, answers, strict=True)
        if difference(answer, base) != recorded(case, version)
    }
    assert different == {}


def recorded(case: dict[str, Any], version: str) -> dict[str, Any]:
    (group,) = (group for group in case["answers"] if version in group["versions"])
    return {key: value for key, value in group.items() if key != "versions"}
