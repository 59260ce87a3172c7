"""Ask real servers again what they answer to the cases, and write their answers into the files of the cases.

``python tests/data/record_stream_config_cases.py`` from the project's root; servers that are not at hand are
fetched, and all run on loopback ports of their own. The answers are recorded, never derived: a difference to
the file's last version is a finding.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from nats_conformance.native_servers import NativeServer
from nats_transforms.tested_versions import TESTED_VERSIONS
from tests.live.servers.stream_config_answers import ask, difference

FILES = [Path(__file__).with_name(name) for name in ("stream_config_cases.json", "stream_config_texts.json")]
VERSIONS = TESTED_VERSIONS


async def record(document: dict[str, Any]) -> dict[str, Any]:
    base: dict[str, Any] = {}
    answers: list[list[dict[str, Any]]] = [[] for _ in document["cases"]]
    for version in VERSIONS:
        with NativeServer(version) as server:
            recorded = await ask(server, [{"config": {"name": "S"}}, *document["cases"]])
        base[version] = recorded[0]["config"]
        for place, answer in zip(answers, recorded[1:], strict=True):
            _add(place, version, difference(answer, base[version]))
        sys.stderr.write(f"{version} answered {len(recorded) - 1} cases\n")
    cases = [
        {**{key: value for key, value in case.items() if key != "answers"}, "answers": answer}
        for case, answer in zip(document["cases"], answers, strict=True)
    ]
    return {"versions": list(VERSIONS), "base": base, "cases": cases}


def _add(place: list[dict[str, Any]], version: str, answer: dict[str, Any]) -> None:
    for group in place:
        if {key: value for key, value in group.items() if key != "versions"} == answer:
            group["versions"].append(version)
            return
    place.append({"versions": [version], **answer})


def write(file: Path, document: dict[str, Any]) -> None:
    """One case per line, so that differences can be read; texts as ASCII, because not all are UTF-8."""
    lines = ["{", f'"versions": {json.dumps(document["versions"])},', '"base": {']
    lines.append(",\n".join(f'"{version}": {json.dumps(config)}' for version, config in document["base"].items()))
    lines += ["},", '"cases": [']
    lines.append(",\n".join(json.dumps(case, ensure_ascii="text" in case) for case in document["cases"]))
    lines += ["]", "}", ""]
    file.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    for file in FILES:
        write(file, asyncio.run(record(json.loads(file.read_text("utf-8")))))
