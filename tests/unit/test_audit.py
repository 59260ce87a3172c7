"""The handling of pip-audit's reports: unknown is not the same as good."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FLAW = {"id": "PYSEC-1", "fix_versions": ["2.0"], "aliases": [], "description": "d"}


@pytest.fixture
def audit() -> ModuleType:
    loader = SourceFileLoader("audit", str(Path(__file__).parents[2] / ".ci" / "audit"))
    module = module_from_spec(spec_from_loader("audit", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def _report(*packages: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(packages), "fixes": []}


SKIPPED = _report({"name": "a", "skip_reason": "Dependency not found on PyPI and could not be audited: a (1.0)"})
GOOD = _report({"name": "a", "version": "1.0", "vulns": []})
BAD = _report({"name": "a", "version": "1.0", "vulns": [FLAW]})


@pytest.mark.parametrize(
    ("reports", "required", "code", "said"),
    [
        ((GOOD, GOOD), "", 0, "no known vulnerability"),
        ((SKIPPED, GOOD), "", 0, "no known vulnerability"),
        ((None, BAD), "", 1, "VULNERABLE: a 1.0: PYSEC-1, fixed in 2.0"),
        ((GOOD, BAD), "", 1, "VULNERABLE"),
        ((SKIPPED, None), "", 0, "NOT AUDITED: no advisory service answered for 1 packages"),
        ((None, None), "", 0, "NOT AUDITED: no advisory service answered for everything"),
        ((None, None), "1", 1, "NOT AUDITED"),
    ],
)
def test_the_verdict(
    reports: tuple[Any, Any],
    required: str,
    code: int,
    said: str,
    audit: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AUDIT_REQUIRED", required)
    monkeypatch.setattr(audit, "report", lambda _, service: reports[audit.SERVICES.index(service)])
    assert audit.main() == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(audit.LOCKS)
    assert all(said in line for line in lines)
