"""Texts of configurations are decided as real servers did: what is JSON, and how they read it, word for word."""

import json
from pathlib import Path
from typing import Any

import pytest

from nats_transforms import StreamConfigError, dialect
from nats_transforms.stream_config import validate
from nats_transforms.stream_config.json_text import read_json

DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "stream_config_texts.json").read_text("utf-8")
)
NOT_JSON = "not JSON"


def decided(text: str, version: str) -> object:
    try:
        return {"config": validate(read_json(text.encode("utf-8", "surrogateescape")), dialect(version))}
    except StreamConfigError as error:
        return {"error": error.as_dict()}
    except json.JSONDecodeError:
        return NOT_JSON


def expected(group: dict[str, Any], version: str) -> dict[str, Any]:
    if "error" in group:
        return {"error": group["error"]}
    config = DOCUMENT["base"][version] | group["config"]
    return {"config": {key: value for key, value in config.items() if value is not None}}


@pytest.mark.parametrize("version", DOCUMENT["versions"])
def test_reads_as_the_server_did(version: str) -> None:
    wrong = []
    for case in DOCUMENT["cases"]:
        (group,) = (group for group in case["answers"] if version in group["versions"])
        ours, theirs = decided(case["text"], version), expected(group, version)
        # The server's words about a text that is not JSON are others.
        agrees = theirs.get("error", {}).get("err_code") == 10025 if ours == NOT_JSON else ours == theirs
        if not agrees:
            wrong.append(f"{case['id']}: we: {ours}, the server: {theirs}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("offset", ["+24:00", "-24:00", "+23:60"])
@pytest.mark.parametrize("version", DOCUMENT["versions"])
def test_an_offset_of_a_day_is_read_and_cannot_be_stored(version: str, offset: str) -> None:
    """Seen on 2.9.10 to 2.15.3. Not among the records, whose recorder takes this answer for that of a busy folder."""
    mirror = {"name": "O", "opt_start_time": f"2024-01-02T03:04:05{offset}"}
    with pytest.raises(StreamConfigError) as refused:
        validate({"name": "S", "mirror": mirror}, dialect(version))
    assert refused.value.as_dict() == {"code": 500, "err_code": 10049, "description": "error creating store for stream"}
