"""Collect the error codes of all servers whose sources are in the Go module cache, from their `server/errors.json`.

``python tests/data/record_api_error_codes.py`` from the project's root writes ``api_error_codes.json``: for each code
its constant, HTTP code and text as the newest server has them, and the first version of those at hand that has it.
Servers before 2.9.10 are left out. A code that a newer server uses for something else is a finding.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("api_error_codes.json")
OLDEST = (2, 9, 10)


def sources() -> dict[tuple[int, ...], Path]:
    """The files at hand, by version, the oldest first."""
    cache = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.strip()
    found = {}
    for path in Path(cache, "github.com/nats-io/nats-server").glob("v2@v*/server/errors.json"):
        version = tuple(int(part) for part in path.parts[-3].removeprefix("v2@v").split("."))
        if version >= OLDEST:
            found[version] = path
    return dict(sorted(found.items()))


def collected(files: dict[tuple[int, ...], Path]) -> dict[str, Any]:
    """What the file of this folder holds."""
    codes: dict[int, dict[str, Any]] = {}
    for version, path in files.items():
        for error in json.loads(path.read_text("utf-8")):
            since = codes.get(error["error_code"], {}).get("since", _text(version))
            codes[error["error_code"]] = {
                "constant": error["constant"],
                "code": error["code"],
                "description": error["description"],
                "since": since,
            }
    return {
        "versions": [_text(version) for version in files],
        "codes": {str(code): codes[code] for code in sorted(codes)},
    }


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


if __name__ == "__main__":
    FILE.write_text(json.dumps(collected(sources()), indent=1) + "\n", "utf-8")
    sys.stderr.write(f"{len(json.loads(FILE.read_text('utf-8'))['codes'])} codes\n")
