import json

import pytest

from nats_transforms import compile_transform, dialect
from nats_transforms.explanation import Input, TokenOrigin


def test_every_token_says_where_it_came_from() -> None:
    transform = compile_transform(b"orders.*.*", b"o.{{partition(3,1,2)}}.{{wildcard(2)}}")
    explained = transform.explain(b"orders.eu.42")
    assert explained.result == transform.apply(b"orders.eu.42")
    assert explained.mismatch is None
    literal, partition, wildcard = explained.tokens
    assert literal == TokenOrigin(b"o", "literal", (), b"o")
    assert partition.function == "partition"
    assert partition.inputs == (Input(1, 2, b"eu"), Input(2, 3, b"42"))
    assert partition.arguments == {"n": 3}
    assert partition.modulus == 3
    assert partition.hash is not None
    assert partition.result == b"%d" % (partition.hash % 3)
    assert wildcard == TokenOrigin(b"{{wildcard(2)}}", "wildcard", (Input(2, 3, b"42"),), b"42")


def test_the_rest_and_the_whole_subject_are_inputs_too() -> None:
    explained = compile_transform(b"a.>", b"{{partition(10)}}.>").explain(b"a.b.c")
    partition, rest = explained.tokens
    assert partition.inputs == (Input(None, None, b"a.b.c"),)
    assert rest.inputs == (Input(None, 2, b"b"), Input(None, 3, b"c"))
    assert rest.result == b"b.c"


def test_index_zero_shows_the_first_token() -> None:
    explained = compile_transform(b"foo.*", b"$0.{{split(1,-)}}.{{left(1,1)}}").explain(b"foo.a-b")
    assert explained.tokens[0].inputs == (Input(0, 1, b"foo"),)
    assert explained.tokens[1].arguments == {"delimiter": "-"}
    assert explained.tokens[1].result == b"a.b"
    assert explained.tokens[2].arguments == {"n": 1}


def test_random_has_no_inputs() -> None:
    explained = compile_transform(b"foo.*", b"{{random(1)}}").explain(b"foo.a")
    assert explained.tokens[0] == TokenOrigin(b"{{random(1)}}", "random", (), b"0", {"n": 1})


@pytest.mark.parametrize(
    ("subject", "code", "position", "words"),
    [
        (b"bar.a", "different", 1, "token 1 is bar, the source wants foo"),
        (b"Foo.a", "different", 1, "token 1 is Foo, the source wants foo: upper and lower case differ"),
        (b"foo", "too_short", 2, "the subject has 1 tokens"),
        (b"foo.a.b", "too_long", 3, "the subject has 3 tokens, the source 2"),
        (b"foo.", "empty_token", 2, "token 2 of the subject is empty"),
        (b"foo.*", "wildcard_in_subject", 2, "token 2 of the subject is *"),
    ],
)
def test_a_mismatch_names_the_token_and_the_reason(subject: bytes, code: str, position: int, words: str) -> None:
    explained = compile_transform(b"foo.*", b"bar.$1").explain(subject)
    assert explained.result is None
    assert explained.tokens == ()
    assert explained.mismatch is not None
    assert (explained.mismatch.code, explained.mismatch.position) == (code, position)
    assert explained.mismatch.reason.startswith(words)


def test_an_empty_destination_is_no_transform() -> None:
    explained = compile_transform(b"foo.*", b"", dialect("2.10")).explain(b"foo.a")
    assert explained.mismatch is not None
    assert explained.mismatch.code == "no_transform"


def test_rest_to_rest_is_explained() -> None:
    explained = compile_transform(b">", b">").explain(b"a.*")
    assert explained.result == b"a.*"


def test_explanations_are_json() -> None:
    matched = compile_transform(b"foo.*", b"x.{{partition(3,1)}}").explain(b"foo.\xff")
    assert json.loads(json.dumps(matched.as_dict())) == {
        "source": "foo.*",
        "destination": "x.{{partition(3,1)}}",
        "subject": "foo.\\xff",
        "result": "x." + matched.tokens[1].result.decode(),
        "tokens": [
            {"token": "x", "function": "literal", "inputs": [], "arguments": {}, "result": "x"},
            {
                "token": "{{partition(3,1)}}",
                "function": "partition",
                "inputs": [{"wildcard": 1, "position": 2, "value": "\\xff"}],
                "arguments": {"n": 3},
                "result": matched.tokens[1].result.decode(),
                "hash": matched.tokens[1].hash,
                "modulus": 3,
            },
        ],
        "mismatch": None,
    }
    missed = compile_transform(b"foo.*", b"x").explain(b"foo").as_dict()
    assert json.loads(json.dumps(missed))["mismatch"]["expected"] == "*"
