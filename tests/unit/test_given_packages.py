"""The packages on which the project is built are declared, and the sidecar imports them."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
BRIDGE = ROOT / "bridge"


@pytest.mark.parametrize(
    ("distribution", "package"),
    [
        ("nats-py", "nats"),
        ("pydantic-settings", "pydantic_settings"),
        ("opentelemetry-sdk", "opentelemetry.sdk"),
        ("tenacity", "tenacity"),
    ],
)
def test_the_sidecar_declares_and_imports(distribution: str, package: str) -> None:
    declared = tomllib.loads((BRIDGE / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert distribution in {Requirement(each).name for each in declared}
    sources = (path.read_text("utf-8") for path in (BRIDGE / "nats_bridge").rglob("*.py"))
    assert any(f"from {package} import " in text or f"from {package}." in text for text in sources)


def test_the_tests_use_pytest_asyncio() -> None:
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "pytest-asyncio" in {Requirement(each).name for each in workspace["dependency-groups"]["dev"]}
    assert workspace["tool"]["pytest"]["ini_options"]["asyncio_mode"] == "auto"
