import pytest

from nats_transforms import compile_transform, dialect
from nats_transforms.republish import StoredMessage, compile_republish, unpublishable
from nats_transforms.reserved import (
    DENIED,
    always_reserved,
    is_reserved,
    is_reserved_reply,
    may_be_reserved,
    reserving_subject,
)
from nats_transforms.subject import matches

RESERVED = (
    b"$JS.API.STREAM.DELETE.ORDERS",
    b"$JS.API",
    b"$JS.hub.API.STREAM.INFO.S",
    b"$JS.hub.API",
    b"$JS.ACK.S.C.1.1.1.1.1",
    b"$JS.FC.S.C.x",
    b"$JS.SNAPSHOT.RESTORE.S.x",
    b"$JS.EVENT.ADVISORY.API",
    b"_R_.a.b",
    b"_GR_.a.b.c",
    b"$GR.a.b.c",
)
FREE = (
    b"$JS",
    b"$JS.x",
    b"$JS.APIS.x",
    b"$JS.a.b.API",
    b"$JS.hub.api",
    b"_R.x",
    b"_R_",
    b"$js.API.x",
    b"a.$JS.API.x",
    b"$KV.A.x",
)


@pytest.mark.parametrize("subject", RESERVED)
def test_commands_are_reserved(subject: bytes) -> None:
    assert is_reserved(subject)
    assert unpublishable(subject) == "reserved"
    assert is_reserved_reply(subject)
    if subject.count(b".") > 1 and not subject.endswith(b".API"):
        assert any(matches(subject, pattern.encode()) for pattern in DENIED)


@pytest.mark.parametrize("subject", FREE)
def test_subjects_that_resemble_commands_are_not(subject: bytes) -> None:
    assert not is_reserved(subject)
    assert unpublishable(subject) is None


@pytest.mark.parametrize(
    ("version", "native"), [("2.9", False), ("2.14.9", False), ("2.14.10", True), ("2.15.3", True)]
)
@pytest.mark.parametrize(
    "pair", [("in.*.>", "{{wildcard(1)}}.>"), (">", ">"), ("in.*", "{{split(1,-)}}"), ("in.>", ">")]
)
def test_no_dialect_republishes_a_command(version: str, native: bool, pair: tuple[str, str]) -> None:
    rule = compile_republish("S", {"src": pair[0], "dest": pair[1]}, dialect(version))
    subject = b"$JS.API.X" if pair[0] == ">" else b"in.$JS-API-X" if "split" in pair[1] else b"in.$JS.API.X"
    assert rule.destination(subject) is None
    assert rule.apply(StoredMessage(subject, b"", b"", 1, 0), 0) is None
    refusal = rule.refusal(subject)
    assert refusal is not None
    assert (refusal.code, refusal.native) == ("reserved", native)
    assert refusal.reason == "'$JS.API.X' is a command to the server, which no message may choose"


@pytest.mark.parametrize(
    ("source", "destination", "within", "expected"),
    [
        ("in.*.>", "{{wildcard(1)}}.>", b"in.>", b"in.$JS.API.STREAM.DELETE.ORDERS"),
        ("in.>", ">", b"in.>", b"in.$JS.API.STREAM.DELETE.ORDERS"),
        (">", ">", b">", b"$JS.API.STREAM.DELETE.ORDERS"),
        (">", ">", b"orders.>", None),
        ("orders.>", "copy.>", b">", None),
        ("*.*.*", "$JS.$2.$1", b"*.*.*", b"$JS.API.$JS"),
        ("a.*", "$JS.x.$1.b", b"a.*", b"a.API"),
        ("a.*", "$JS.x.$1.b", b"a.b", None),
        ("a.*", "$JS.{{partition(3,1)}}", b"a.*", None),
        ("a.*", "{{split(1,-)}}", b"a.>", b"a.$JS-API-x"),
        ("a.*", "{{splitFromLeft(1,3)}}", b"a.>", b"a.$JSAPI"),
        ("a.*.*", "{{right(1,3)}}.$2", b"a.>", b"a.$JS.API"),
        ("a.*", "{{left(1,3)}}.API", b"a.>", b"a.$JS"),
        ("$JS.*.>", "$JS.$1.>", b"$JS.>", b"$JS.$JS.API.STREAM.DELETE.ORDERS"),
        ("a.>", "$JS.API.>", b"a.>", b"a.API.STREAM.DELETE.ORDERS"),
    ],
)
def test_a_search_finds_a_subject_that_makes_a_command(
    source: str, destination: str, within: bytes, expected: bytes | None
) -> None:
    transform = compile_transform(source.encode(), destination.encode())
    found = reserving_subject(transform, [within])
    assert found == expected
    if found is not None:
        assert may_be_reserved(transform)
        assert is_reserved(transform.apply(found) or b"")


def test_an_excluded_subject_is_no_example() -> None:
    transform = compile_transform(b"in.*.>", b"$1.>")
    assert reserving_subject(transform, [b"in.>"], [b"in.$JS.>"]) == b"in._R_.API.STREAM.DELETE.ORDERS"
    assert reserving_subject(transform, [b"in.>"], [b"in.$JS.>", b"in._R_.>"]) is None


@pytest.mark.parametrize(
    ("destination", "always"),
    [("$JS.API.$1", True), ("$JS.$1.API", True), ("_R_.$1", True), ("$JS.$1.x", False), ("$1.API", False)],
)
def test_some_destinations_are_commands_for_every_message(destination: str, always: bool) -> None:
    assert always_reserved(compile_transform(b"a.*", destination.encode())) is always
