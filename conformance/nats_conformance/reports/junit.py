"""JUnit XML, as CI systems read it: a suite per subject of test."""

import re
from xml.etree import ElementTree

from nats_conformance.catalogue.case import Case
from nats_conformance.outcome import Outcome, Verdict
from nats_conformance.reports.judgement import Cell, Judged

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(judged: Judged) -> bytes:
    """Return the file's content, UTF-8.

    Cases that do not apply to a test subject are left out of its suite. Known differences and divergences are passed
    tests with the reason in their output. A run that is not complete has a separate suite with an error for each
    reason.
    """
    root = ElementTree.Element("testsuites", name="nats-conform")
    for label in judged.subjects:
        cells = [(case, cell) for case, of, cell in judged.every_cell() if of == label]
        _suite(root, label, [(case, cell) for case, cell in cells if cell.verdict.outcome is not Outcome.INAPPLICABLE])
    objections = judged.objections()
    if objections:
        suite = _element(
            root, "testsuite", name="the run", tests=len(objections), failures=0, errors=len(objections), skipped=0
        )
        for number, objection in enumerate(objections, 1):
            test = _element(suite, "testcase", classname="the run", name=f"is complete ({number})", time=0)
            _element(test, "error", message=objection, type="partial")
    ElementTree.indent(root)
    found: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return found + b"\n"


def _suite(root: ElementTree.Element, label: str, cells: list[tuple[Case, Cell]]) -> None:
    outcomes = [cell.verdict.outcome for _, cell in cells]
    suite = _element(
        root,
        "testsuite",
        name=label,
        tests=len(cells),
        failures=outcomes.count(Outcome.FAIL),
        errors=outcomes.count(Outcome.ERRORED),
        skipped=outcomes.count(Outcome.SKIPPED),
        time=f"{sum(cell.seconds or 0 for _, cell in cells):.3f}",
    )
    for case, cell in cells:
        test = _element(
            suite,
            "testcase",
            classname=f"{label}: {case.clause}",
            name=f"{case.id}: {case.title}",
            time=f"{cell.seconds or 0:.3f}",
        )
        _outcome(test, cell.verdict)


def _outcome(test: ElementTree.Element, verdict: Verdict) -> None:
    match verdict.outcome:
        case Outcome.FAIL:
            failure = _element(test, "failure", message=verdict.reason, type="fail")
            lines = (
                f"{each.where}\n  expected {each.expected}\n  observed {each.observed}" for each in verdict.mismatches
            )
            failure.text = _xml("\n".join(lines))
        case Outcome.ERRORED:
            _element(test, "error", message=verdict.reason, type="errored")
        case Outcome.SKIPPED:
            _element(test, "skipped", message=verdict.reason)
        case Outcome.DIFFERENCE | Outcome.DIVERGENCE:
            out = _element(test, "system-out")
            out.text = _xml(f"{verdict.outcome.value}: {verdict.reason}")


def _element(parent: ElementTree.Element, tag: str, **attributes: object) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, {name: _xml(str(value)) for name, value in attributes.items()})


def _xml(text: str) -> str:
    # XML cannot contain control characters and lone surrogates.
    return _NOT_XML.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)
