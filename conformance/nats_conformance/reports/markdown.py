"""Renders the report as Markdown for a pull request: counts, failures, known divergences, skipped cases."""

import re
from collections.abc import Iterator

from nats_conformance.catalogue.case import Case
from nats_conformance.outcome import Outcome
from nats_conformance.reports.judgement import Cell, Judged
from nats_conformance.reports.links import clause_link
from nats_conformance.reports.reproduction import reproduction
from nats_conformance.reports.signs import SIGNS

_LONGEST = 400


def markdown(judged: Judged, divergences: str = "") -> str:
    """Return the file's content. `divergences` is the address of the page on known divergences."""
    explained = f"[docs/known-divergences.md]({divergences})" if divergences else "docs/known-divergences.md"
    return "".join(
        [
            *_head(judged),
            *_failures(judged),
            *_reported(
                judged,
                Outcome.DIVERGENCE,
                "Known divergences",
                f"Their ids are explained in {explained}.",
            ),
            *_reported(judged, Outcome.SKIPPED, "Skipped"),
        ]
    )


def _head(judged: Judged) -> Iterator[str]:
    word = "passed" if judged.passed else "failed" if judged.failures else "not complete"
    yield f"# Conformance: {word}\n\n"
    for objection in judged.objections():
        yield f"> **Partial.** {plain(objection)}\n\n"
    start = judged.history.start
    reported = [plain(judged.choice)] if judged.choice else []
    reported += [f"suite {start['suite']}"] if start.get("suite") else []
    reported += [f"running server {code(str(start['server']))}"] if start.get("server") else []
    reported += [str(start["time"])] if start.get("time") else []
    if start.get("catalogue"):
        version = f"{plain(str(start['catalogue_version']))} " if start.get("catalogue_version") else ""
        reported.append(f"catalogue {version}{code(str(start['catalogue'])[:12])}")
    number = len(judged.cases)
    yield ", ".join([f"{number} case{'s' if number != 1 else ''}", *reported]) + ".\n\n"
    yield row("Subject of test", *(f"{sign.sign} {sign.word}" for sign in SIGNS.values()))
    yield row("---", *("---:" for _ in SIGNS))
    for label in judged.subjects:
        counts = judged.counts(label)
        yield row(label, *(str(counts[outcome] or "-") for outcome in SIGNS))
    meanings = ", ".join(f"{sign.sign} {sign.meaning}" for sign in SIGNS.values())
    yield f"\n{meanings}.\n"


def _failures(judged: Judged) -> Iterator[str]:
    if not judged.failures:
        return
    yield f"\n## Failures ({len(judged.failures)})\n"
    for case, label, cell in judged.failures:
        yield from _failure(judged, case, label, cell)


def _failure(judged: Judged, case: Case, label: str, cell: Cell) -> Iterator[str]:
    verdict = cell.verdict
    yield f"\n### {SIGNS[verdict.outcome].sign} {case.id}, {plain(label)}\n\n"
    yield f"{plain(case.title)} ({_clause(case)}, {case.level.value}). {plain(verdict.reason)}\n\n"
    if case.transform is not None:
        yield f"{code(str(case.transform))}\n\n"
    if verdict.mismatches:
        yield row("Where", "Expected", "Observed")
        yield row("---", "---", "---")
        for each in verdict.mismatches:
            yield row(*(code(shortened(text, _LONGEST)) for text in (each.where, each.expected, each.observed)))
        yield "\n"
    start = judged.history.start
    yield f"```sh\n{reproduction(case.id, judged.subjects[label], start.get('server'))}\n```\n"


def _reported(judged: Judged, outcome: Outcome, heading: str, note: str = "") -> Iterator[str]:
    """Yield the cases with this outcome, with the reason and the test subjects that share it."""
    found: dict[tuple[str, str], list[str]] = {}
    titles = {case.id: case.title for case in judged.cases}
    for case, label, cell in judged.every_cell():
        if cell.verdict.outcome is outcome:
            found.setdefault((case.id, cell.verdict.reason), []).append(label)
    if not found:
        return
    yield f"\n## {heading} ({len(found)})\n\n" + (f"{note}\n\n" if note else "")
    yield row("Case", "Subjects of test", "Why")
    yield row("---", "---", "---")
    for (case_id, reason), labels in found.items():
        yield row(f"{plain(titles[case_id])}<br>{code(case_id)}", ", ".join(labels), plain(reason))


def _clause(case: Case) -> str:
    link = clause_link(case.clause)
    return f"[{plain(case.clause)}]({link})" if link else plain(case.clause)


def code(text: str) -> str:
    """Return a code span that is also valid in tables; empty for an empty text."""
    if not text:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|").replace("\n", " ")


def plain(text: str) -> str:
    """Return a text that means nothing in Markdown, except for links to its addresses, and stays in its line."""
    found = re.sub(r"(https://[\w./#?=&%:~-]+)|([\\`*_\[\]<>|])", lambda each: each[1] or f"\\{each[2]}", text)
    return found.replace("\n", " ")


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cell.replace(chr(10), ' ') for cell in cells)} |\n"


def shortened(text: str, longest: int) -> str:
    """Return the text, or its beginning and its end with an ellipsis between them."""
    if len(text) <= longest:
        return text
    end = longest // 4
    return f"{text[: longest - end - 1]}…{text[-end:]}"
