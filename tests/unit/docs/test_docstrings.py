"""Docstrings of the four packages keep to plain English (docs/style.md), as a maintainer of the library would write."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.unit.docs.pages import ROOT

# The number of findings that a package may still have, in texts that users see. It can only fall.
CEILINGS: Final = {"transforms": 0, "bridge": 0, "conformance": 2, "pipeline": 0}

# Where a sentence, a paragraph, or the text of an entry such as `Raises:` begins.
_BEGIN: Final = r"(?:\A|[.?!:]\s+|\n\n\s*)"
# Each with the way to rewrite it.
RULES: Final = {
    re.compile(pattern): advice
    for pattern, advice in {
        _BEGIN + r"What (?!happens |to )": "name the thing: 'messages in flight', 'the reason'",
        _BEGIN + r"The same\b": "repeat the noun: 'Return the summary as plain data'",
        _BEGIN + r"So many\b": "say 'this many', 'at most N', or name the parameter",
        r"(?<![Tt]here\s)\bis\s+no\s+(?!longer\b|more\b)\w+": "write 'is not a', 'does not exist' or 'without'",
        r"\bof\s+(?:its|our|their)\s+own\b": "write 'separate' or 'its own', or name the owner",
        r"(?<!`)``[^`]+``(?!`)": "put code in single backticks",
    }.items()
}


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every string that stands alone: docstrings, and those of constants and fields."""
    blocks: list[ast.AST] = [ast.parse(source)]
    while blocks:
        for statement in getattr(blocks.pop(), "body", ()):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.If() | ast.Try() | ast.With():
                    blocks.append(statement)


def findings(name: str, source: str) -> list[str]:
    """Return a line for each sentence to rewrite: file, line, the words, and advice."""
    return [
        f"{name}:{line + text.count(chr(10), 0, hit.end())}: '{' '.join(hit[0].split())}': {advice}"
        for line, text in docstrings(source)
        for rule, advice in RULES.items()
        for hit in rule.finditer(text)
    ]


def needless(source: str) -> list[str]:
    """Return the private functions with a docstring although their body has at most three lines.

    The name has to say what such a function does. A comment can say why.
    """
    return [
        f"{each.lineno}: {each.name}"
        for each in ast.walk(ast.parse(source))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and re.match("_(?!_)", each.name)
        and ast.get_docstring(each)
        and len(each.body) > 1
        and (each.end_lineno or 0) - (each.body[0].end_lineno or 0) <= 3
    ]


@pytest.mark.parametrize("package", CEILINGS)
def test_short_private_functions_need_no_docstring(package: str) -> None:
    found = [
        f"{path}:{each}" for path in sorted(Path(ROOT, package).rglob("*.py")) for each in needless(path.read_text())
    ]
    assert found == []


def test_a_needless_docstring_is_found() -> None:
    assert needless('def _f():\n    """Return."""\n    a\n    b\n    return a\n') == ["1: _f"]
    assert needless('def _f():\n    """Return."""\n    a\n    b\n    c\n    return a\n') == []
    assert needless('def f():\n    """Return."""\n    return a\n') == []


@pytest.mark.parametrize("package", CEILINGS)
def test_docstrings_are_plain(package: str) -> None:
    found = [
        each
        for path in sorted(Path(ROOT, package).rglob("*.py"))
        for each in findings(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    ]
    assert len(found) <= CEILINGS[package], "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "What the target holds.",
        "Read it. The same for sources.",
        "Return it.\n\n    Args:\n        most: So many at most.",
        "The result\n    is no subject.",
        "Runs a loop of its own.",
        "See ``Reader``.",
    ],
)
def test_a_riddle_is_found(text: str) -> None:
    (found,) = findings("a.py", f'"""{text}"""\n')
    assert found.startswith(f"a.py:{1 + text.count(chr(10))}: ")


@pytest.mark.parametrize(
    "text",
    [
        "There is no limit, and it is no longer needed. It happens at the same time.",
        "Example: see `Reader`.\n\n```text\na  b\n```",
        "Return the stream's own record, or the reason why there is no record.",
    ],
)
def test_plain_english_is_accepted(text: str) -> None:
    assert findings("a.py", f'"""{text}"""\n') == []
