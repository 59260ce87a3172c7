"""The transform engine rule by rule; a test's name is the rule."""

import pickle

import pytest

from nats_transforms import TransformError, compile_mapping, compile_transform, dialect
from nats_transforms.destination import check_mapping_destination

V29, V2925, V210, V211, V212, V215 = "2.9.10", "2.9.25", "2.10.27", "2.11.17", "2.12.15", "2.15.1"
ALL = (V29, V2925, V210, V211, V212, V215)


def result(source: str, destination: str, subject: str | bytes, version: str = V215) -> bytes | None:
    given = subject.encode() if isinstance(subject, str) else subject
    return compile_transform(source.encode(), destination.encode(), dialect(version)).apply(given)


def refusal(source: str, destination: str, version: str = V215) -> TransformError:
    with pytest.raises(TransformError) as refused:
        compile_transform(source.encode(), destination.encode(), dialect(version))
    return refused.value


# ------------------------------------------------------------------------------------------ terms and parsing


@pytest.mark.parametrize("version", ALL)
def test_dots_split_before_functions_are_seen(version: str) -> None:
    assert result("foo.*", "{{split(1,.)}}.$1", "foo.a", version) == b"{{split(1,.)}}.a"


@pytest.mark.parametrize("version", ALL)
def test_empty_tokens_and_tokens_after_rest_are_invalid(version: str) -> None:
    for bad in ["foo.", ".foo", "foo..bar", "foo.>.bar"]:
        assert refusal(bad, "bar", version).reason == "invalid subject"
        assert refusal("foo", bad, version).code == "invalid_subject"


@pytest.mark.parametrize("version", ALL)
def test_white_space_is_not_checked_by_the_engine(version: str) -> None:
    assert result("foo .*", "b\tr.$1", "foo .x", version) == b"b\tr.x"


def test_an_empty_source_means_everything_except_on_2_9() -> None:
    assert refusal("", "bar.>", V29).code == "invalid_subject"
    assert result("", "bar.>", "a.b", V210) == b"bar.a.b"
    assert result("", ">", "a.*", V210) == b"a.*"


def test_an_empty_destination_is_an_error_on_2_9_and_no_transform_later() -> None:
    assert refusal("foo.*", "", V29).reason == "invalid subject"
    transform = compile_transform(b"foo..bad", b"", dialect(V210))  # the source is not even checked
    assert transform.is_empty
    assert transform.apply(b"foo.a") is None


@pytest.mark.parametrize("version", ALL)
def test_a_destination_has_no_star_token_and_rest_is_in_both_or_in_neither(version: str) -> None:
    for source, destination in (("foo.*", "bar.*"), ("foo.>", "bar"), ("foo", "bar.>"), ("foo.*", "bar.>")):
        assert refusal(source, destination, version).reason == "invalid subject"


@pytest.mark.parametrize("version", ALL)
def test_rest_to_rest_returns_the_subject_without_any_check(version: str) -> None:
    for subject in ["a", "a..b", "", "*", "a.>", "."]:
        assert result(">", ">", subject, version) == subject.encode()


@pytest.mark.parametrize("token", ["a$1", "$1-$1", "x{{wildcard(1)}}", "{{wildcard(1)}}x", "{{wildcard(1)}"])
def test_there_is_no_interpolation_inside_a_token(token: str) -> None:
    assert result("foo.*", token, "foo.a") == token.encode()
    assert refusal("foo.*", token, V29).code == "unused_wildcards"


@pytest.mark.parametrize("token", ["$1", "$01", "$+1", "$0000000000000000000000000000001"])
def test_dollar_numbers_may_have_a_sign_and_leading_zeros(token: str) -> None:
    assert result("foo.*", token, "foo.a") == b"a"


@pytest.mark.parametrize("token", ["$foo", "$1a", "$0x1", "$1_0", "$$", "$", "$9223372036854775808", "$ 1", "$--1"])
def test_dollar_and_anything_else_is_a_literal(token: str) -> None:
    assert result("foo.*", token, "foo.a") == token.encode()


def test_double_braces_of_four_bytes_are_a_literal() -> None:
    assert result("foo.*", "{{}}", "foo.a") == b"{{}}"
    assert refusal("foo.*", "{{a}}").reason == "invalid mapping destination: unknown function in {{a}}"


@pytest.mark.parametrize(
    "token", ["{{x{{wildcard(1)}}", "{{{wildcard(1)}}}", "{{foo}}{{wildcard(1)}}", "{{wildcard(1)}} {{x}}"]
)
def test_functions_are_searched_without_anchors(token: str) -> None:
    assert result("foo.*", token, "foo.a") == b"a"


def test_the_argument_list_is_greedy() -> None:
    error = refusal("foo.*", "{{wildcard(1)}}{{wildcard(1)}}")
    assert error.code == "invalid_argument"
    assert result("foo.*", "{{split(1,))}}", "foo.a)b") == b"a.b"


def test_the_first_function_in_the_order_of_search_wins() -> None:
    # split is searched last but for random, wildcard first; left before split.
    assert result("foo.*", "{{split(1,-)}}{{wildcard(1)}}", "foo.a-b") == b"a-b"
    assert result("foo.*", "{{split(1,-)}}{{left(1,2)}}", "foo.a-bc") == b"a-"
    assert result("foo.*", "{{random(5)}}{{left(1,1)}}", "foo.ab") == b"a"


@pytest.mark.parametrize("name", ["splitfromleft", "SplitFromLeft", "SplitfromLeft", "splitFromLeft", "splitFromleft"])
def test_the_first_letter_of_each_word_may_be_either_case(name: str) -> None:
    assert result("foo.*", f"{{{{{name}(1,1)}}}}", "foo.abc") == b"a.bc"


@pytest.mark.parametrize(
    "call",
    ["SPLITFROMLEFT(1,1)", "splitFROMLeft(1,1)", "wildCard(1)", "leFt(1,1)", "PARTITION(1)", "split_from_left(1,1)"],
)
def test_other_spellings_are_unknown_functions(call: str) -> None:
    assert refusal("foo.*", f"{{{{{call}}}}}").code == "unknown_function"


@pytest.mark.parametrize("space", ["", " ", "\t", "\r", "\n", "\f", " \t\r\n\f "])
def test_white_space_is_allowed_around_name_and_parentheses(space: str) -> None:
    token = "{{" + space + "wildcard" + space + "(1)" + space + "}}"
    assert result("foo.*", token, "foo.a") == b"a"


def test_a_vertical_tab_is_not_white_space() -> None:
    assert refusal("foo.*", "{{\x0bwildcard(1)}}").code == "unknown_function"


def test_spaces_are_trimmed_from_integers_and_white_space_after_commas() -> None:
    assert result("foo.*", "{{splitfromleft( 1 , 2 )}}", "foo.abcd") == b"ab.cd"
    assert result("foo.*", "{{splitfromleft(1,\t2)}}", "foo.abcd") == b"ab.cd"
    assert refusal("foo.*", "{{wildcard(\t1)}}").code == "invalid_argument"
    assert refusal("foo.*", "{{splitfromleft(1\t,2)}}").code == "invalid_argument"


def test_a_line_feed_inside_the_arguments_makes_the_function_unknown() -> None:
    assert refusal("foo.*", "{{wildcard(\n1)}}").code == "unknown_function"


@pytest.mark.parametrize("argument", ["1_0", "0x1", "1;5", "a", " ", "--1", "99999999999999999999", '"1"', "$1"])
def test_integers_are_decimal(argument: str) -> None:
    assert refusal("foo.*", f"{{{{wildcard({argument})}}}}").code == "invalid_argument"


def test_the_number_of_arguments_is_checked() -> None:
    assert refusal("foo.*", "{{wildcard()}}").reason == (
        "invalid mapping destination: not enough arguments passed to the function in {{wildcard()}}"
    )
    assert refusal("foo.*", "{{wildcard(1,2)}}").reason == (
        "invalid mapping destination: too many arguments passed to the function in {{wildcard(1,2)}}"
    )
    assert refusal("foo.*", "{{split(1,a,b)}}").code == "too_many_arguments"
    assert refusal("foo.*", "{{left(1)}}").code == "not_enough_arguments"


@pytest.mark.parametrize("version", ALL)
def test_an_index_above_the_number_of_stars_is_out_of_range(version: str) -> None:
    for token in ["$2", "{{wildcard(2)}}", "{{split(2,-)}}", "{{partition(3,1,2)}}"]:
        assert refusal("foo.*", token, version).reason == (
            f"invalid mapping destination: wildcard index out of range in {token}: [2]"
        )


@pytest.mark.parametrize("version", ALL)
def test_index_zero_and_negatives_mean_the_first_token_of_the_subject(version: str) -> None:
    for token in ["$0", "$-1", "{{wildcard(0)}}", "{{wildcard(-7)}}", "{{splitfromleft(0,9)}}"]:
        assert result("foo.*", f"{token}.x", "foo.a", version) == b"foo.x"
        assert result("*.*", f"{token}.$2", "w.a", version) == b"w.a"


def test_a_source_with_only_a_rest_takes_index_zero_but_on_2_10_and_2_11() -> None:
    for version in (V29, V2925, V212, V215):
        assert result("foo.>", "bar.$0.>", "foo.a.b", version) == b"bar.foo.a.b"
        assert result(">", "bar.$0.>", "x.a.b", version) == b"bar.x.x.a.b"
        assert refusal("foo.>", "bar.$1.>", version).reason.endswith("$1: [1]")
    for version in (V210, V211):
        error = refusal("foo.>", "bar.$0.>", version)
        assert error.reason == "invalid mapping destination: wildcard index out of range in $0"


def test_a_source_without_wildcards_copies_the_destination_on_2_9() -> None:
    assert result("foo", "bar.{{nonsense}}.$7", "foo", V29) == b"bar.{{nonsense}}.$7"
    assert refusal("foo", "bar.$7", V210).reason.endswith("out of range in $7")


def test_a_source_without_wildcards_takes_partition_and_random_from_2_12() -> None:
    assert refusal("foo.bar", "{{partition(10,1)}}", V211).code == "index_out_of_range"
    for destination in ("x.{{partition(10)}}", "x.{{partition(10,1)}}", "x.{{partition(10,99)}}"):
        assert result("foo.bar", destination, "foo.bar", V212) == b"x.6"
    assert result("foo.bar", "x.{{random(1)}}", "foo.bar", V212) == b"x.0"
    assert refusal("foo.bar", "x.{{wildcard(0)}}", V212).code == "index_out_of_range"


def test_all_wildcards_must_be_used_up_to_2_9() -> None:
    assert refusal("foo.*.*", "x.$1", V2925).reason == (
        "invalid mapping destination: not using all of the token wildcard(s) in x.$1"
    )
    assert result("foo.*.*", "x.$1", "foo.a.b", V210) == b"x.a"


def test_the_wildcard_rule_counts_and_does_not_identify() -> None:
    assert result("foo.*.*", "x.$1.$1", "foo.a.b", V29) == b"x.a.a"
    assert result("foo.*", "x.$0", "foo.a", V29) == b"x.foo"


def test_a_function_of_several_indexes_counts_once_up_to_2_9_14() -> None:
    assert refusal("foo.*.*", "x.{{partition(3,1,2)}}", "2.9.14").code == "unused_wildcards"
    assert result("foo.*.*", "x.{{partition(10,1,2)}}", "foo.a.b", "2.9.15") == b"x.6"


def test_literal_tokens_may_hold_anything_else() -> None:
    for token in ("a b", "\t", "*x", ">x", "**", "\u00e9", "$JS", "_INBOX", "{x}"):
        assert result("foo", token, "foo") == token.encode()


# -------------------------------------------------------------------------------------- checks of the callers


def test_the_mapping_check_does_not_know_left_and_right_before_2_14_7() -> None:
    assert compile_transform(b"foo.*", b"{{left(1,1)}}", dialect("2.10.16")).apply(b"foo.ab") == b"a"
    for version in (V210, V211, V212, "2.14.6"):
        with pytest.raises(TransformError) as refused:
            compile_mapping(b"foo.*", b"{{left(1,1)}}", dialect(version))
        assert refused.value.code == "unknown_function"
    assert compile_mapping(b"foo.*", b"{{left(1,1)}}", dialect("2.14.7")).apply(b"foo.ab") == b"a"


@pytest.mark.parametrize(
    ("destination", "where", "newest"), [(b"bar.>.x", " in x", " in x"), (b"bar..x", " in ", ""), (b"b r.x", "", "")]
)
@pytest.mark.parametrize(
    ("version", "what", "is_newest"),
    [
        (V210, "invalid subject", False),
        (V211, "invalid transform", False),
        ("2.12.4", "invalid transform", False),
        ("2.12.5", "invalid transform", True),
        (V215, "invalid transform", True),
    ],
)
def test_the_mapping_check_refuses_white_space_and_tokens_after_rest(
    destination: bytes, where: str, newest: str, version: str, what: str, is_newest: bool
) -> None:
    with pytest.raises(TransformError) as refused:
        check_mapping_destination(destination, dialect(version))
    assert refused.value.reason == f"invalid mapping destination: {what}{newest if is_newest else where}"


def test_the_mapping_check_lets_white_space_inside_functions_pass() -> None:
    check_mapping_destination(b"a.{{ wildcard ( 1 ) }}.>", dialect(V29))


def test_the_mapping_check_takes_an_empty_destination_from_2_10() -> None:
    check_mapping_destination(b"", dialect(V210))
    with pytest.raises(TransformError):
        check_mapping_destination(b"", dialect(V29))


# --------------------------------------------------------------------------------------------------- matching


@pytest.mark.parametrize("subject", ["", ".", "foo.", ".a", "foo..a", "foo.*", "foo.>", "*.a", ">"])
@pytest.mark.parametrize(
    ("source", "destination"),
    [("*.*", "x.$1.$2"), (">", "x.>"), ("foo.>", "x.>"), ("*.>", "x.$1.>"), ("foo.*", "x"), ("*", "x")],
)
def test_subjects_with_empty_or_wildcard_tokens_never_match(source: str, destination: str, subject: str) -> None:
    assert result(source, destination, subject) is None


def test_tokens_that_only_contain_wildcards_match() -> None:
    assert result("foo.*", "x.$1", "foo.*a") == b"x.*a"
    assert result("foo.>", "x.>", "foo.>>.a>") == b"x.>>.a>"


def test_rest_matches_one_token_or_more() -> None:
    assert result("foo.>", "x.>", "foo") is None
    assert result("foo.>", "x.>", "foo.a") == b"x.a"
    assert result("foo.>", "x.>", "foo.a.b.c") == b"x.a.b.c"
    assert result("*.b.>", "x.$1.>", "a.b") is None


def test_the_number_of_tokens_must_agree_without_rest() -> None:
    assert result("a.*", "x.$1", "a") is None
    assert result("a.*", "x.$1", "a.b.c") is None


@pytest.mark.parametrize("version", ALL)
def test_a_source_token_that_begins_with_a_star_matches_anything(version: str) -> None:
    assert result("foo.*x", "y", "foo.zzz", version) == b"y"
    assert result("**.a", "y", "b.a", version) == b"y"
    assert result("*x.b.>", "y.>", "q.b.c", version) == b"y.c"
    assert result("foo.*x", "y", "foo.*", version) is None


def test_such_a_token_does_not_count_as_a_wildcard() -> None:
    assert refusal("foo.*x", "$1", V210).code == "index_out_of_range"
    assert result("*x.*", "$1", "a.b") == b"b"


def test_a_source_token_that_begins_with_a_rest_sign_is_a_literal() -> None:
    assert result("foo.>x", "y", "foo.a") is None
    assert result("foo.>x", "y", "foo.>x") == b"y"


def test_matching_is_byte_exact() -> None:
    assert result("foo.*", "$1", "Foo.a") is None
    assert result("\u00e9.*", "$1", "e\u0301.a") is None


def test_the_number_of_wildcards_is_not_limited() -> None:
    count = 300
    source = ".".join(["*"] * count)
    destination = ".".join(f"${index}" for index in range(count, 0, -1))
    subject = ".".join(f"t{index}" for index in range(count))
    assert result(source, destination, subject) == ".".join(reversed(subject.split("."))).encode()


# ------------------------------------------------------------------------------------------------- evaluation


def test_partition_hashes_tokens_without_a_separator() -> None:
    assert result("*.*", "{{partition(4294967295,1,2)}}", "a.bc", V211) == result(
        "*.*", "{{partition(-1,1,2)}}", "ab.c"
    )
    assert result("foo.*", "{{partition(2147483647,1)}}", "foo.a") == b"1678518573"


def test_a_negative_modulus_is_read_as_unsigned() -> None:
    assert result("foo.*", "{{partition(-1,1)}}", "foo.a") == b"3826002220"
    assert result("foo.*", "{{partition(-2147483649,1)}}", "foo.a") == b"1678518573"


def test_a_modulus_above_32_bits_wraps_and_is_refused_from_2_12() -> None:
    assert result("foo.*", "{{partition(2147483648,1)}}", "foo.a", V211) == b"1678518572"
    assert refusal("foo.*", "{{partition(2147483648,1)}}", V212).code == "invalid_argument"


@pytest.mark.parametrize("zero", ["0", "-0", "-4294967296"])
def test_modulus_zero_is_a_defect_before_2_12_and_gives_zero_after(zero: str) -> None:
    for version in (V29, V210, V211):
        transform = compile_transform(b"foo.*", f"{{{{partition({zero},1)}}}}".encode(), dialect(version))
        assert transform.defects == ("crash-partition-zero",)
        assert transform.apply(b"foo.a") == b"0"
    transform = compile_transform(b"foo.*", f"{{{{partition({zero},1)}}}}".encode(), dialect(V212))
    assert transform.defects == ()
    assert transform.apply(b"foo.a") == b"0"


def test_partition_of_the_subject_exists_from_2_12() -> None:
    assert refusal("foo.*", "{{partition(10)}}", V211).code == "not_enough_arguments"
    assert result("foo.*", "bar.{{partition(10)}}.$1", "foo.a") == b"bar.2.a"
    assert result(">", "bar.{{partition(10)}}.>", "foo.a.b") == b"bar.4.foo.a.b"


def test_random_is_uniform_below_its_limit_and_exists_from_2_12() -> None:
    assert refusal("foo.*", "{{random(5)}}", V211).code == "unknown_function"
    transform = compile_transform(b"foo.*", b"{{random(5)}}")
    assert transform.is_random
    assert {transform.apply(b"foo.a") for _ in range(500)} == {b"0", b"1", b"2", b"3", b"4"}


def test_random_takes_the_absolute_value_and_zero_gives_zero() -> None:
    transform = compile_transform(b"foo.*", b"{{random(-2)}}")
    assert {transform.apply(b"foo.a") for _ in range(200)} == {b"0", b"1"}
    for limit in ("0", "1", "-1"):
        fixed = compile_transform(b"foo.*", f"{{{{random({limit})}}}}".encode())
        assert not fixed.is_random
        assert fixed.apply(b"foo.a") == b"0"


def test_random_takes_exactly_one_argument_in_32_bits() -> None:
    assert refusal("foo.*", "{{random(1,2)}}").code == "not_enough_arguments"
    assert refusal("foo.*", "{{random()}}").code == "invalid_argument"
    assert refusal("foo.*", "{{random(2147483648)}}").code == "invalid_argument"


CUTS = [
    ("splitFromLeft", {0: "abcdef", 2: "ab.cdef", 5: "abcde.f", 6: "abcdef", -1: "abcdef"}),
    ("splitFromRight", {0: "abcdef", 2: "abcd.ef", 5: "a.bcdef", 6: "abcdef", -1: "abcdef"}),
    ("sliceFromLeft", {0: "abcdef", 1: "a.b.c.d.e.f", 2: "ab.cd.ef", 4: "abcd.ef", 6: "abcdef", 7: "abcdef"}),
    ("sliceFromRight", {0: "abcdef", 1: "a.b.c.d.e.f", 2: "ab.cd.ef", 4: "ab.cdef", 6: "abcdef", 7: "abcdef"}),
    ("left", {0: "abcdef", 2: "ab", 6: "abcdef", 7: "abcdef", -1: "abcdef"}),
    ("right", {0: "abcdef", 2: "ef", 6: "abcdef", 7: "abcdef", -1: "abcdef"}),
]


@pytest.mark.parametrize(
    ("function", "length", "expected"),
    [(name, length, expected) for name, table in CUTS for length, expected in table.items()],
)
def test_cuts_happen_only_strictly_inside_the_token(function: str, length: int, expected: str) -> None:
    assert result("foo.*", f"x.{{{{{function}(1,{length})}}}}.y", "foo.abcdef") == f"x.{expected}.y".encode()


def test_lengths_count_bytes_and_may_break_characters() -> None:
    assert result("foo.*", "{{left(1,1)}}", "foo.\u00e9a") == b"\xc3"
    assert result("foo.*", "{{slicefromleft(1,2)}}", "foo.\u65e5") == b"\xe6\x97.\xa5"


def test_lengths_beyond_32_bits_wrap_up_to_2_11_7_and_are_refused_later() -> None:
    assert result("foo.*", "{{splitfromleft(1,4294967298)}}", "foo.abcdef", "2.11.7") == b"ab.cdef"
    for version in ("2.11.8", "2.12.0"):
        assert refusal("foo.*", "{{splitfromleft(1,4294967298)}}", version).code == "invalid_argument"


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("a-b", "a.b"),
        ("-a-b-", "a.b"),
        ("a---b", "a.b"),
        ("--a", ".a"),
        ("---a--b--", ".a.b"),
        ("-", ""),
        ("--", ""),
        ("---", ""),
        ("ab", "ab"),
    ],
)
def test_split_drops_empty_pieces_except_for_a_leading_dot(token: str, expected: str) -> None:
    assert result("foo.*", "x.{{split(1,-)}}", f"foo.{token}") == f"x.{expected}".encode()


def test_split_delimiters_may_be_several_bytes_and_do_not_overlap() -> None:
    assert result("foo.*", "{{split(1,aa)}}", "foo.baaab") == b"b.ab"
    assert result("foo.*", "{{split(1,aa)}}", "foo.aaab") == b"ab"
    assert result("foo.*", "{{split(1,aa)}}", "foo.aaaab") == b".b"


def test_split_delimiters_hold_no_space_but_a_tab_at_the_end() -> None:
    assert refusal("foo.*", "{{split(1,a b)}}").code == "invalid_argument"
    assert refusal("foo.*", "{{split(1,- )}}").code == "invalid_argument"
    assert result("foo.*", "{{split(1,-\t)}}", b"foo.a-\tb") == b"a.b"


@pytest.mark.parametrize("destination", ["{{split(1,)}}", "{{split(1, )}}"])
def test_an_empty_delimiter_splits_between_characters(destination: str) -> None:
    assert result("foo.*", destination, "foo.a\u65e5\U0001f600") == "a.\u65e5.\U0001f600".encode()
    # What is not UTF-8 is split byte by byte.
    assert result("foo.*", destination, b"foo.\xed\xa0\x80\xc3") == b"\xed.\xa0.\x80.\xc3"


def test_a_comma_is_no_delimiter_and_quotes_are_ordinary() -> None:
    assert refusal("foo.*", "{{split(1,,)}}").code == "too_many_arguments"
    assert result("foo.*", '{{split(1,")}}', 'foo.a"b') == b"a.b"


def test_rest_copies_the_subject_from_the_position_of_the_source() -> None:
    assert result("a.*.b.>", "x.>", "a.1.b.2.3") == b"x.2.3"


# ------------------------------------------------------------------------------------------------- the object


def test_transforms_are_values() -> None:
    transform = compile_transform(b"foo.*", b"bar.$1", dialect(V210))
    again = pickle.loads(pickle.dumps(transform))
    assert again == transform
    assert again.apply(b"foo.a") == b"bar.a"
    assert transform != compile_transform(b"foo.*", b"bar.$1", dialect(V211))


def test_no_text_of_the_user_becomes_code() -> None:
    nasty = b"');import os#\\\n\"{0}%s\x00"
    transform = compile_transform(nasty + b".*", b"$1." + nasty)
    assert transform.apply(nasty + b".a") == b"a." + nasty
