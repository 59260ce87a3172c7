"""Exports the cases as a separate data set for other suites and programs, with schema, version and licence."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from nats_conformance.catalogue.reading import CATALOGUE, checksum, read_catalogue

ABOUT = "catalogue.json"
"""The file that describes the cases: name, version, licence and schema. An export also has their checksum and
number."""

_LICENCE = "LICENSE"


@cache
def about() -> dict[str, Any]:
    """Return the description of the catalogue."""
    found: dict[str, Any] = json.loads((CATALOGUE / ABOUT).read_text("utf-8"))
    return found


def export(folder: Path) -> int:
    """Write the cases into a folder that is empty or does not exist, for use with `--cases`. Return their number.

    Raises:
        OSError: the folder is not empty, or cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(17, "the folder is not empty", str(folder))
    for file in sorted(CATALOGUE.rglob("*.yaml")):
        place = folder / file.relative_to(CATALOGUE)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    for name in (_LICENCE, about()["schema"]):
        shutil.copyfile(CATALOGUE / name, folder / name)
    cases = len(read_catalogue())
    described = {**about(), "sha256": checksum(), "cases": cases}
    (folder / ABOUT).write_text(json.dumps(described, indent=2) + "\n", "utf-8")
    return cases
