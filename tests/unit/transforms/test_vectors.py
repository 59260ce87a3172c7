"""Every recorded vector: what real 2.9.10, 2.10.27 and 2.15.1 servers did with a transform and a subject.

A line of ``transform_vectors.jsonl`` was run as republish (``results``), as a stream's ingress transform
(``subject_transform``) and as an account mapping (``mapping``). ``null`` means that no subscriber received
anything; ``{"hex": …}`` is a subject that is not UTF-8. No answer is left out: each is compared, or belongs
to a class below whose rule is not the engine's, and the number of answers in each class is asserted.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nats_transforms import Transform, TransformError, compile_mapping, compile_transform, dialect
from nats_transforms.functions import modulus_of
from nats_transforms.republish import compile_republish
from nats_transforms.subject import collide, is_valid_filter, tokens

VECTORS = Path(__file__).parents[2] / "data" / "transform_vectors.jsonl"
VERSIONS = ("2.9.10", "2.10.27", "2.15.1")


def raw(value: Any) -> bytes:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()


def load() -> list[dict[str, Any]]:
    return [json.loads(line) for line in VECTORS.read_text("ascii").splitlines()]


ROWS = load()


def as_json_says(subject: bytes) -> bytes:
    """Stored subjects were read through the JSON API, which shows each byte that is not UTF-8 as U+FFFD."""
    shown, rest = "", subject
    while rest:
        try:
            return (shown + rest.decode()).encode()
        except UnicodeDecodeError as error:
            shown += rest[: error.start].decode() + "\ufffd"
            rest = rest[error.start + 1 :]
    return shown.encode()


def test_as_json_says_replaces_byte_by_byte() -> None:
    assert as_json_says(b"a\xe6\x97.b") == "a\ufffd\ufffd.b".encode()
    assert as_json_says("h\u00e9".encode()) == "h\u00e9".encode()


def test_the_file_is_complete() -> None:
    assert len(ROWS) == 459
    assert (
        sum(any(isinstance(value, dict) and "hex" in value for value in row["results"].values()) for row in ROWS) == 20
    )
    assert all(set(row["results"]) == set(VERSIONS) for row in ROWS)
    assert sum(row.get("loop", False) for row in ROWS) == 2


def republish_class(row: dict[str, Any], version: str) -> str:
    """Compare one republish answer; the class that it belongs to."""
    answer = row["results"][version]
    source, destination, subject = raw(row["src"]), raw(row["dest"]), raw(row["subject"])
    fields = {"src": source, "dest": destination}
    if isinstance(answer, dict) and "error" in answer:
        text = answer["error"]
        if text.endswith("forms a cycle"):
            # The stream's rule, not the transform's: the destination collides with one of its subjects.
            assert any(collide(destination or source, raw(own), by_first_byte=True) for own in row["stream_subjects"])
            return "cycle"
        if text.endswith("not valid subset of subjects"):
            assert not any(collide(source, raw(own), by_first_byte=True) for own in row["stream_subjects"])
            return "source outside the stream"
        assert text.endswith("not valid"), text
        with pytest.raises(TransformError):
            compile_republish("S", fields, dialect(version))
        return "refused"
    republish = compile_republish("S", fields, dialect(version))
    if isinstance(answer, dict) and "crash" in answer:
        assert republish.transform.defects == ("crash-partition-zero",)
        return "crash"
    assert republish.transform.defects == ()
    if republish.transform.is_random:
        raise AssertionError("no recorded vector has a random result")
    refusal = republish.refusal(subject)
    if refusal is not None and not refusal.native:
        # Old servers deliver these. A client cannot publish white space, and no message may choose a command.
        assert refusal.destination == raw(answer)
        assert republish.destination(subject) is None
        return f"{refusal.code} delivered natively"
    assert republish.destination(subject) == (None if answer is None else raw(answer))
    if refusal is not None:
        return "withheld"
    return "no match" if answer is None else "republished"


EXPECTED_REPUBLISH = {
    "2.9.10": {
        "crash": 2,
        "cycle": 2,
        "no match": 7,
        "refused": 189,
        "republished": 252,
        "reserved delivered natively": 1,
        "source outside the stream": 1,
        "withheld": 5,
    },
    "2.10.27": {
        "crash": 2,
        "cycle": 2,
        "no match": 10,
        "refused": 126,
        "republished": 312,
        "reserved delivered natively": 1,
        "white_space delivered natively": 1,
        "withheld": 5,
    },
    "2.15.1": {
        "cycle": 2,
        "no match": 10,
        "refused": 118,
        "republished": 320,
        "reserved delivered natively": 1,
        "withheld": 8,
    },
}


@pytest.mark.parametrize("version", VERSIONS)
def test_republish_column(version: str) -> None:
    classes = Counter(republish_class(row, version) for row in ROWS)
    assert sum(classes.values()) == 459
    assert dict(classes) == EXPECTED_REPUBLISH[version]


def compiled(source: bytes, destination: bytes, version: str, column: str) -> Transform:
    chosen = dialect(version)
    # From 2.11 on an ingress transform goes through the check of mappings first.
    if column == "mapping" or chosen.stream_transforms_are_mappings:
        return compile_mapping(source, destination, chosen)
    return compile_transform(source, destination, chosen)


def stored_or_mapped_class(row: dict[str, Any], version: str, column: str) -> str:
    """Compare one answer of an ingress transform or of an account mapping; the class that it belongs to."""
    answer = row[column][version]
    source, destination, subject = raw(row["src"]), raw(row["dest"]), raw(row["subject"])
    if isinstance(answer, dict) and "error" in answer:
        text = answer["error"]
        if text.endswith("is not a valid subject") or text == f"stream transform source: invalid subject {row['src']}":
            assert not is_valid_filter(source)  # the caller's rule: white space, or no source at all
            return "bad source"
        with pytest.raises(TransformError) as refused:
            compiled(source, destination, version, column)
        # The servers' logs, where mapping errors were read, lose a space at the end.
        assert text.endswith(refused.value.reason.rstrip())
        return "refused"
    transform = compiled(source, destination, version, column)
    if isinstance(answer, dict) and "crash" in answer:
        assert transform.is_empty  # the caller's defect: it calls a transform that does not exist
        return "crash without transform"
    result = transform.apply(subject)
    expected = subject if result is None else result  # neither feature filters
    if column == "subject_transform":
        assert raw(answer) == as_json_says(expected)
        return "unchanged" if result is None else "transformed"
    if answer is None:
        assert b"" in tokens(expected)
        return "no subscriber"
    if raw(answer) == expected:
        return "unchanged" if result is None else "transformed"
    if not {b"*", b">"}.isdisjoint(tokens(subject)):
        # Mappings do not look whether a subject is literal.
        assert result is None
        assert (source, destination) == (b"foo.>", b"bar.>")
        assert raw(answer) == b"bar." + tokens(subject)[-1]
        return "wildcard in the subject"
    # A mapping with a literal source hashes nothing instead of the subject.
    assert b"{{partition(" in destination
    assert b"*" not in source
    assert int(raw(answer).split(b".")[1]) == 2166136261 % modulus_of(transform.parts[1])
    return "partition of nothing"


EXPECTED_OTHER: dict[tuple[str, str], dict[str, int]] = {
    ("subject_transform", "2.10.27"): {"refused": 126, "transformed": 321, "unchanged": 10},
    ("subject_transform", "2.15.1"): {"bad source": 1, "refused": 119, "transformed": 328, "unchanged": 9},
    ("mapping", "2.9.10"): {
        "bad source": 4,
        "no subscriber": 5,
        "refused": 191,
        "transformed": 250,
        "unchanged": 5,
        "wildcard in the subject": 2,
    },
    ("mapping", "2.10.27"): {
        "bad source": 4,
        "crash without transform": 1,
        "no subscriber": 5,
        "refused": 183,
        "transformed": 257,
        "unchanged": 5,
        "wildcard in the subject": 2,
    },
    ("mapping", "2.15.1"): {
        "bad source": 4,
        "crash without transform": 1,
        "no subscriber": 5,
        "partition of nothing": 4,
        "refused": 118,
        "transformed": 318,
        "unchanged": 5,
        "wildcard in the subject": 2,
    },
}


@pytest.mark.parametrize(
    ("column", "version"),
    [
        ("subject_transform", "2.10.27"),
        ("subject_transform", "2.15.1"),
        ("mapping", "2.9.10"),
        ("mapping", "2.10.27"),
        ("mapping", "2.15.1"),
    ],
)
def test_stored_and_mapped_columns(column: str, version: str) -> None:
    answered = [row for row in ROWS if column in row]
    classes = Counter(stored_or_mapped_class(row, version, column) for row in answered)
    assert len(answered) == 457  # the two crash lines were run as republish only
    assert dict(classes) == EXPECTED_OTHER[column, version]
