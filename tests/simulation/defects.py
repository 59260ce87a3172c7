"""Known defects that can be put back into the bridge, to see which seed finds them. `defects.yaml` lists them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import yaml

import nats_bridge

BRIDGE = Path(nats_bridge.__file__).parent
_LISTED = yaml.safe_load(Path(__file__).with_name("defects.yaml").read_text())
ENTRIES: dict[str, dict[str, str]] = {entry["name"]: entry for entry in _LISTED}


def put_back(name: str) -> None:
    """Load the defective module, before anything else imports it."""
    entry = ENTRIES[name]
    place = "nats_bridge." + entry["file"].removesuffix(".py").replace("/", ".")
    parent, _, child = place.rpartition(".")
    package, code = importlib.import_module(parent), (BRIDGE / entry["file"]).read_text()
    assert code.count(entry["before"]) == 1, f"the code of this defect has moved: {name}"
    assert place not in sys.modules, place
    spec = importlib.util.spec_from_file_location(place, BRIDGE / entry["file"])
    assert spec is not None
    module = sys.modules[place] = importlib.util.module_from_spec(spec)
    exec(compile(code.replace(entry["before"], entry["after"]), entry["file"], "exec"), module.__dict__)
    setattr(package, child, module)
