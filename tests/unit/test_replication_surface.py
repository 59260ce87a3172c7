"""What `pipeline` uses of `bridge` is what `bridge` publishes for it: a few modules, their names, nothing private."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

BRIDGE = "nats_bridge.bridge"
PUBLISHED = {
    f"{BRIDGE}.errors",
    f"{BRIDGE}.settings",
    f"{BRIDGE}.replication",
    f"{BRIDGE}.replication.rules",
    f"{BRIDGE}.cli.asking",
    f"{BRIDGE}.cli.connection_options",
    f"{BRIDGE}.cli.options",
}
SOURCES = sorted(path for folder in ("pipeline", "pyspark_jetstream") for path in Path(folder).rglob("*.py"))


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in SOURCES:
        yield path, ast.parse(path.read_text("utf-8"))


def imported() -> Iterator[tuple[Path, str, str]]:
    """Each name that is imported from `bridge`, with its module; an empty name for the module itself."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(BRIDGE):
                yield from ((path, node.module or "", alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module == "nats_bridge":
                yield from ((path, f"nats_bridge.{alias.name}", "") for alias in node.names if alias.name == "bridge")
            elif isinstance(node, ast.Import):
                yield from ((path, alias.name, "") for alias in node.names if alias.name.startswith(BRIDGE))


def test_pipeline_imports_published_names() -> None:
    found = list(imported())
    assert len(found) > 100
    wrong = [
        f"{path}: {module} {name}"
        for path, module, name in found
        if module not in PUBLISHED or not name or name.startswith("_")
    ]
    assert not wrong, "\n".join(wrong)


def test_every_name_published_for_pipeline_is_used() -> None:
    used = {(module, name) for _, module, name in imported()}
    for module in (f"{BRIDGE}.replication", f"{BRIDGE}.replication.rules"):
        tree = ast.parse(Path(import_module(module).__file__ or "").read_text("utf-8"))
        names = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
        unused = [name for name in names if name != "annotations" and (module, name) not in used]
        assert len(names) > 10
        assert not unused, f"{module}: {', '.join(unused)}"


def test_subclasses_of_what_is_published_touch_nothing_private() -> None:
    """A private attribute of their own would be one of the base class's some day."""
    bases = {name for _, _, name in imported()}
    wrong = [
        f"{path}:{node.lineno}: self.{node.attr}"
        for path, tree in trees()
        for made in ast.walk(tree)
        if isinstance(made, ast.ClassDef) and bases & {ast.unparse(base) for base in made.bases}
        for node in ast.walk(made)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
    ]
    assert not wrong, "\n".join(wrong)
