"""Rules for the source of the product that no linter knows."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache

from tests.unit.docs.pages import ROOT

_PRODUCT = ("transforms", "bridge", "conformance", "pipeline")
_LINES = range(9, 100)  # of nats-server 2
_KNOW_VERSIONS = (
    "transforms/nats_transforms/dialect.py",
    "transforms/nats_transforms/tested_versions.py",
    # Cases without `since` are about every version from 2.9.0 on.
    "conformance/nats_conformance/catalogue/reading.py",
    "conformance/nats_conformance/catalogue/case.py",
)


@cache
def modules() -> Mapping[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
        for folder in _PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def test_only_the_dialects_know_versions_of_servers() -> None:
    found = [
        f"{name}:{each.lineno}: {ast.unparse(each)}"
        for name, module in modules().items()
        if name not in _KNOW_VERSIONS
        for each in _written_versions(module)
    ]
    assert not found, f"make it a flag of Dialect: {found}"


def _written_versions(module: ast.AST) -> Iterator[ast.expr]:
    """Versions that something is compared with, such as `version < (2, 11, 0)` or `text.startswith("2.9.")`."""
    for node in ast.walk(module):
        match node:
            case ast.Tuple(elts=[ast.Constant(value=2), ast.Constant(value=int(line)), *_]) if line in _LINES:
                yield node
            case ast.Call(func=ast.Attribute(attr="startswith"), args=[ast.Constant(value=str(text)), *_]):
                if text.startswith("2."):
                    yield node
            case _:
                pass


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for name, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{name}:{node.lineno}")
    repeated = {name: found for name, found in places.items() if len(found) > 1 and name not in _TWO_MEANINGS}
    assert not repeated, f"say in the name which one it is: {repeated}"


_TWO_MEANINGS = {"Connection": "the settings of a connection, and the connection"}


def test_waits_take_their_times_from_one_module() -> None:
    found = [
        f"{name}: {constant}"
        for name, module in modules().items()
        if name.startswith(("bridge/", "pipeline/"))
        for constant in sorted(_times(module) & _waited_for(module))
        if (name, constant) not in _OWN_TIMES
    ]
    assert not found, f"take a policy of bridge/nats_bridge/client/waiting.py: {found}"


_OWN_TIMES = {
    ("bridge/nats_bridge/app/sidecar.py", "_LONG_START"): "reloads wait for a start, not for a server",
    ("bridge/nats_bridge/cli/status/asking.py", "_PATIENCE"): "a sidecar answers, not a server",
    ("bridge/nats_bridge/cli/status/command.py", "_BETWEEN"): "a screen that is drawn again",
    ("bridge/nats_bridge/cli/watch.py", "_BETWEEN"): "a screen that is drawn again",
    ("bridge/nats_bridge/client/tasks.py", "_PATIENCE"): "our own tasks, which are cancelled again",
    ("bridge/nats_bridge/consuming/ordered_reader.py", "_LEAVING_POLL"): "a server that is certain to act at once",
    ("bridge/nats_bridge/consuming/rule_consumer.py", "_LEADERLESS"): "a stream's own leader bounds it",
    ("bridge/nats_bridge/kinds/advisories/captured.py", "_ACK_WAIT"): "a member of the consumer's configuration",
    ("bridge/nats_bridge/kinds/advisories/captured.py", "_EXPIRES"): "a member of the request",
    ("bridge/nats_bridge/kinds/copying/run.py", "_CLOSE"): "within the time for leaving a rule, CLOSING",
    ("bridge/nats_bridge/rules/delivery.py", "_IDLE_CONFIRMATION"): "of the hot path",
    ("bridge/nats_bridge/rules/open_run.py", "_DRAIN"): "divides what Kubernetes grants a pod",
    ("bridge/nats_bridge/telemetry/exposition.py", "_PAUSE"): "gives the event loop its turn",
    ("pipeline/nats_bridge_spark/backfill/fence.py", "_TIMES"): "times a lease's time",
    ("pipeline/nats_bridge_spark/session.py", "_PATIENCE"): "Java ends, not a server",
    ("pipeline/nats_bridge_spark/progress.py", "_LOOK"): "a screen that is drawn again",
    ("pipeline/nats_bridge_spark/sink/stored_rows.py", "_LOOK"): "twenty of them decide that nothing more comes",
}


def _times(module: ast.Module) -> set[str]:
    """The constants of a module that are numbers."""
    found = set()
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float())):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() | float())):
                found.add(name)
            case _:
                pass
    return found


def _waited_for(module: ast.Module) -> set[str]:
    """The names in what says for how long something waits."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            waits = list(node.args) if called in ("sleep", "timeout", "wait_fixed") else []
            waits += [each.value for each in node.keywords if each.arg in ("timeout", "within", "wait")]
            found |= {each.id for wait in waits for each in ast.walk(wait) if isinstance(each, ast.Name)}
    return found
