"""One function for many patterns says what `matches` says of each."""

from hypothesis import given
from hypothesis import strategies as st

from nats_transforms.subject import matcher, matches

_TOKENS = st.sampled_from([b"", b"a", b"b", b"a+b", b"(", b"*", b">", b"*a", b"a\nb", b"\xff", b"%", b"|"])
_SUBJECTS = st.lists(_TOKENS, min_size=1, max_size=4).map(b".".join)


@given(st.lists(_SUBJECTS, min_size=1, max_size=3), _SUBJECTS)
def test_is_what_matches_says(patterns: list[bytes], subject: bytes) -> None:
    any_of_them = matcher(patterns)
    assert any_of_them is not None
    assert bool(any_of_them(subject)) == any(matches(subject, pattern) for pattern in patterns)


def test_without_patterns_there_is_none() -> None:
    assert matcher([]) is None
