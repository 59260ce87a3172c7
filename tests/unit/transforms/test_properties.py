"""What must hold for every transform, subject and header block, whatever they are."""

from hypothesis import given
from hypothesis import strategies as st

from nats_transforms import Transform, TransformError, compile_transform, dialect, header_block
from nats_transforms.republish import Republish, StoredMessage, compile_republish
from nats_transforms.subject import collide, is_subset, is_valid_pattern, is_valid_publish, matches, tokens

DIALECTS = st.sampled_from(["2.9.10", "2.9.25", "2.10.0", "2.10.27", "2.11.17", "2.12.15", "2.14.9", "2.15.1"]).map(
    dialect
)
PIECES = st.sampled_from(
    [b"a", b"b", b"foo", b"*", b">", b"", b"*x", b">x", b"a-b", b"--a", b"-", b" ", b"\xff", "\u00e9\u65e5".encode()]
)
SUBJECTS = st.lists(PIECES, min_size=1, max_size=5).map(b".".join) | st.binary(max_size=12)
INTEGERS = st.sampled_from(["0", "1", "2", "3", "-1", "+2", " 1 ", "x", "", "2147483648", "-4294967296", "99999999999"])
NAMES = st.sampled_from(
    [
        "wildcard",
        "partition",
        "split",
        "splitFromLeft",
        "SplitFromRight",
        "slicefromleft",
        "sliceFromRight",
        "left",
        "Right",
        "random",
        "LEFT",
        "nothing",
    ]
)
CALLS = st.builds(
    lambda name, arguments: f"{{{{{name}({','.join(arguments)})}}}}".encode(),
    NAMES,
    st.lists(INTEGERS | st.just("-"), max_size=3),
)
SOURCES = st.lists(st.sampled_from([b"*", b"foo", b"a", b"*", b"*x"]), min_size=1, max_size=4).flatmap(
    lambda parts: st.sampled_from([b".".join(parts), b".".join([*parts, b">"]), b">"])
)
DESTINATIONS = st.lists(PIECES | CALLS | st.sampled_from([b"$1", b"$2", b"$0", b"$x"]), min_size=1, max_size=4).flatmap(
    lambda parts: st.sampled_from([b".".join(parts), b".".join([*parts, b">"])])
)


def build(source: bytes, destination: bytes, version: str) -> Transform | None:
    try:
        return compile_transform(source, destination, dialect(version))
    except TransformError:
        return None


@given(SOURCES | SUBJECTS, DESTINATIONS | SUBJECTS, DIALECTS, st.lists(SUBJECTS, max_size=5))
def test_compiling_refuses_or_gives_a_function_that_never_raises(
    source: bytes, destination: bytes, chosen: object, subjects: list[bytes]
) -> None:
    transform = build(source, destination, str(chosen))
    if transform is None:
        return
    for subject in subjects:
        result = transform.apply(subject)
        assert result is None or isinstance(result, bytes)


@given(SOURCES, DESTINATIONS, DIALECTS, SUBJECTS)
def test_the_explanation_agrees_with_the_result(
    source: bytes, destination: bytes, chosen: object, subject: bytes
) -> None:
    transform = build(source, destination, str(chosen))
    if transform is None or transform.is_random:
        return
    explained = transform.explain(subject)
    assert explained.result == transform.apply(subject)
    assert (explained.mismatch is None) == (explained.result is not None)


@given(
    st.permutations(range(4)), st.booleans(), st.lists(st.sampled_from([b"a", b"x-y", b"\xff"]), min_size=4, max_size=6)
)
def test_reverse_undoes_a_permutation(order: list[int], rest: bool, values: list[bytes]) -> None:
    tail = [b">"] if rest else []
    source = b".".join([b"in", *[b"*"] * 4, *tail])
    destination = b".".join([*(b"$%d" % (index + 1) for index in order), b"out", *tail])
    transform = compile_transform(source, destination)
    subject = b".".join([b"in", *values])
    there = transform.apply(subject)
    if there is not None:
        assert transform.reverse().apply(there) == subject
    assert transform.reverse().reverse().apply(subject) == there


@given(SOURCES, DESTINATIONS, DIALECTS, SUBJECTS)
def test_reverse_undoes_whatever_it_accepts(source: bytes, destination: bytes, chosen: object, subject: bytes) -> None:
    transform = build(source, destination, str(chosen))
    if transform is None:
        return
    try:
        back = transform.reverse()
    except TransformError:
        return
    there = transform.apply(subject)
    if there is not None:
        assert back.apply(there) == subject


@given(SOURCES, DESTINATIONS, DIALECTS, SUBJECTS)
def test_a_destination_is_publishable_or_refused(
    source: bytes, destination: bytes, chosen: object, subject: bytes
) -> None:
    try:
        republish: Republish = compile_republish("S", {"src": source, "dest": destination}, dialect(str(chosen)))
    except TransformError:
        return
    if republish.transform.is_random:
        return
    result = republish.destination(subject)
    matched = republish.transform.apply(subject)
    refusal = republish.refusal(subject)
    if result is None:
        assert matched is None or (refusal is not None and refusal.destination == matched)
        return
    assert refusal is None
    assert result == matched
    assert b"" not in tokens(result)
    assert not set(result) & set(b" \t\r\n")
    if republish.dialect.republish_suppresses_invalid_subject:
        assert is_valid_publish(result)


@given(SUBJECTS, SUBJECTS)
def test_collision_is_symmetric_and_follows_from_subset(a: bytes, b: bytes) -> None:
    assert collide(a, b) == collide(b, a)
    # Not so for tokens such as `*x`: a subset by their first byte, but no wildcards where collisions are
    # looked for.
    plain = all(len(token) < 2 or token[:1] != b"*" for token in tokens(b))
    if is_subset(a, b) and is_valid_pattern(a) and is_valid_pattern(b) and plain:
        assert collide(a, b)


@given(st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=4).map(b".".join), SOURCES)
def test_what_a_filter_matches_is_a_subset_of_it(subject: bytes, pattern: bytes) -> None:
    if matches(subject, pattern):
        assert is_subset(subject, pattern)


NAMES_OF_HEADERS = st.from_regex(rb"\A[A-Za-z][A-Za-z-]{0,8}\Z")
VALUES = st.from_regex(rb"\A[!-~]([ -~]{0,8}[!-~])?\Z") | st.just(b"")
BLOCKS = st.just(b"") | st.lists(st.tuples(NAMES_OF_HEADERS, VALUES), min_size=1, max_size=4).map(
    lambda lines: header_block.append(b"", lines)
)


@given(BLOCKS, st.lists(st.tuples(NAMES_OF_HEADERS, VALUES), min_size=1, max_size=4))
def test_what_was_appended_last_is_read(block: bytes, lines: list[tuple[bytes, bytes]]) -> None:
    longer = header_block.append(block, lines)
    assert longer.startswith(block[:-2])
    assert longer.endswith(b"\r\n\r\n")
    for name, value in dict(lines).items():
        assert header_block.read(longer, name) == value


@given(BLOCKS, NAMES_OF_HEADERS, VALUES)
def test_removing_what_was_appended_restores_the_block(block: bytes, name: bytes, value: bytes) -> None:
    without = header_block.remove(block, name)
    longer = header_block.append(block, [(name, value)])
    assert header_block.read(header_block.remove(longer, name), name) is None
    assert header_block.remove(longer, name) == without


@given(st.binary(max_size=40), NAMES_OF_HEADERS)
def test_header_blocks_of_any_bytes_are_handled(block: bytes, name: bytes) -> None:
    assert header_block.remove(block, name) == (block if name not in block else header_block.remove(block, name))
    header_block.remove_prefix(block, name)
    header_block.read(block, name)
    if len(block) > 2:
        assert header_block.append(block, [(name, b"v")]) == block[:-2] + name + b": v\r\n\r\n"


@given(BLOCKS, st.integers(0, 2**63), st.integers(0, 2**62), st.integers(0, 2**63), st.binary(max_size=20), DIALECTS)
def test_a_republished_message_carries_its_provenance(
    block: bytes, sequence: int, time_ns: int, last: int, payload: bytes, chosen: object
) -> None:
    republish = compile_republish("S", {"src": "foo.*", "dest": "bar.$1", "headers_only": True}, dialect(str(chosen)))
    sent = republish.apply(StoredMessage(b"foo.a", block, payload, sequence, time_ns), last)
    assert sent is not None
    assert sent.subject == b"bar.a"
    assert sent.payload == b""
    assert sent.header_block.startswith(block[:-2] or b"NATS/1.0\r\n")
    assert header_block.read(sent.header_block, b"Nats-Sequence") == b"%d" % sequence
    assert header_block.read(sent.header_block, b"Nats-Last-Sequence") == b"%d" % last
    assert header_block.read(sent.header_block, b"Nats-Msg-Size") == b"%d" % len(payload)
