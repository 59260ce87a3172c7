"""Reads and writes the history of a run: JSON lines with everything that was observed, and no expectations.

The first line describes the run, and the last one marks a complete run. Every line between them is one case for one
test subject: its observation, or the reason why it did not run. Subjects, header blocks and payloads are in base64.

```
{"record": "start", "history": 1, "suite": "0.1.0", "catalogue": "…", "subjects": [{"kind": "native", …}], …}
{"record": "observation", "case": "adr28/headers/order/1", "subject": "native 2.10.27", "observation": {…}, …}
{"record": "not played", "case": "…", "subject": "…", "outcome": "skipped", "reason": "…"}
{"record": "end", "records": 812}
```
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from nats_conformance.errors import HistoryError
from nats_conformance.identity import Identity
from nats_conformance.observation import Observation
from nats_conformance.outcome import Outcome

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Played:
    """A case that ran, and the `seconds` that it took."""

    case: str
    subject: str
    observation: Observation
    seconds: float


@dataclass(frozen=True, slots=True)
class Unplayed:
    """A case that was not played: skipped, errored, or not applicable."""

    case: str
    subject: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class History:
    """A history, read from its file.

    Attributes:
        start: the whole first line: `suite`, `catalogue`, `time`, `selection`, ….
        subjects: by label, in the order of the run.
        records: in the order of the run.
        missing: subjects of test that were not available, with the reason.
        is_complete: whether the last line is present and none is missing.
    """

    start: Mapping[str, Any]
    subjects: Mapping[str, Identity]
    records: tuple[Played | Unplayed, ...]
    is_complete: bool
    missing: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = field(default=None, compare=False)


class HistoryWriter:
    """Writes a history during the run. Every line is on disk when `add` returns. A context manager."""

    def __init__(self, file: Path, subjects: Mapping[str, Identity], **start: Any) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._text: TextIO = file.open("w", encoding="utf-8")
        self._records = 0
        named = [each.as_json() for each in subjects.values()]
        self._write("start", history=FORMAT, **start, subjects=named)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._write("end", records=self._records)
        self._text.close()

    def add(self, record: Played | Unplayed) -> None:
        """Write one record."""
        self._records += 1
        about = {"case": record.case, "subject": record.subject}
        if isinstance(record, Played):
            seconds, seen = round(record.seconds, 4), record.observation.as_json()
            self._write("observation", **about, seconds=seconds, observation=seen)
        else:
            self._write("not played", **about, outcome=record.outcome.value, reason=record.reason)

    def _write(self, kind: str, **members: Any) -> None:
        self._text.write(json.dumps({"record": kind, **members}, separators=(",", ":")) + "\n")
        self._text.flush()


def read_history(file: Path) -> History:
    """Read a history. One that was cut short is read to its end, and is incomplete.

    Raises:
        HistoryError: the file is not a history, has a newer format, or has a damaged line.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryError(f"{file}: {error}") from None
    values = list(_values(file, lines))
    if not values or values[0].get("record") != "start":
        raise HistoryError(f"{file}:1: a history begins with a line of record 'start'; this is none, or it is empty")
    start = values[0]
    if start.get("history") != FORMAT:
        raise HistoryError(
            f"{file}:1: history format {start.get('history')!r}; this version of the suite reads format {FORMAT}"
        )
    records: list[Played | Unplayed] = []
    is_complete = False
    for number, value in enumerate(values[1:], 2):
        try:
            if value["record"] == "end":
                is_complete = int(value["records"]) == len(records)
            else:
                records.append(_record(value))
                is_complete = False  # lines after the end were not written by a run
        except (KeyError, TypeError, ValueError) as error:
            raise HistoryError(f"{file}:{number}: not a record of a history: {error!r}") from None
    try:
        identities = [Identity.from_json(each) for each in start["subjects"]]
        subjects = {each.label: each for each in identities}
    except (KeyError, TypeError) as error:
        raise HistoryError(f"{file}:1: subjects cannot be read: {error!r}") from None
    missing = dict(start.get("missing") or {})
    return History(start, subjects, tuple(records), is_complete and not missing, missing, file)


def _values(file: Path, lines: list[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                return  # cut short within its last line: not complete, and reported as such
            raise HistoryError(f"{file}:{number}: not JSON: {error}") from None
        if not isinstance(value, dict):
            raise HistoryError(f"{file}:{number}: a record is a JSON object")
        yield value


def _record(value: Mapping[str, Any]) -> Played | Unplayed:
    if value["record"] == "observation":
        observation = Observation.from_json(value["observation"])
        return Played(value["case"], value["subject"], observation, float(value["seconds"]))
    if value["record"] == "not played":
        return Unplayed(value["case"], value["subject"], Outcome(value["outcome"]), value["reason"])
    raise ValueError(f"record {value['record']!r} is unknown")
