"""Rules for the source of the product that no linter knows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.unit.docs.pages import ROOT

_PRODUCT = ("transforms", "bridge", "conformance", "pipeline")
MODULES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
    for folder in _PRODUCT
    for path in sorted((ROOT / folder).rglob("*.py"))
}
_LINES = range(9, 100)  # of nats-server 2
_KNOW_VERSIONS = (
    "transforms/nats_transforms/dialect.py",
    "transforms/nats_transforms/tested_versions.py",
    # Cases without `since` are about every version from 2.9.0 on.
    "conformance/nats_conformance/catalogue/reading.py",
    "conformance/nats_conformance/catalogue/case.py",
)


def test_only_the_dialects_know_versions_of_servers() -> None:
    found = [
        f"{name}:{each.lineno}: {ast.unparse(each)}"
        for name, module in MODULES.items()
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
