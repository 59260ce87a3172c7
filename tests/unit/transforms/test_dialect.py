import pickle

import pytest

from nats_transforms import NEWEST, UnknownDialectError, dialect
from nats_transforms.dialect import Feature
from nats_transforms.tested_versions import NEWEST_PATCHES


def test_a_minor_line_means_its_newest_known_patch() -> None:
    assert dialect("2.10").version == (2, 10, NEWEST_PATCHES[2, 10])
    assert dialect("2.10").name == str(dialect("2.10")) == "2.10.27"
    assert dialect("2.15") is NEWEST


@pytest.mark.parametrize("text", ["2.10.27", "v2.10.27", "2.10.27-RC.3", "2.10.27+dirty"])
def test_full_versions_are_accepted_with_decoration(text: str) -> None:
    assert dialect(text).version == (2, 10, 27)


def test_a_newer_patch_of_a_known_line_is_accepted() -> None:
    assert dialect("2.15.99").republish_suppresses_invalid_subject


@pytest.mark.parametrize(
    "text", ["2.8", "2.8.4", "2.13", "2.16.0", "3.0", "1", "", "native", "2.10.x", "2.10 ", "2.10.27\n"]
)
def test_other_texts_are_refused_with_what_is_known(text: str) -> None:
    with pytest.raises(UnknownDialectError) as refused:
        dialect(text)
    assert refused.value.code == "unknown_dialect"
    assert "known are 2.9, 2.10, 2.11, 2.12, 2.14, 2.15" in str(refused.value)


@pytest.mark.parametrize(
    ("feature", "without", "with_it"),
    [
        ("unused_wildcards_allowed", ["2.9.25"], ["2.10.0", "2.15.1"]),
        ("every_index_counts", ["2.9.0", "2.9.14"], ["2.9.15", "2.10.0"]),
        ("left_and_right", ["2.9.25", "2.10.15"], ["2.10.16", "2.11.0"]),
        ("int32_arguments_checked", ["2.10.27", "2.11.7"], ["2.11.8", "2.12.0", "2.14.0"]),
        ("partition_of_subject", ["2.11.17"], ["2.12.0"]),
        ("random_function", ["2.11.17"], ["2.12.0"]),
        ("partition_zero_is_safe", ["2.11.17"], ["2.12.0"]),
        ("literal_source_copies_destination", ["2.10.0", "2.15.1"], ["2.9.0", "2.9.25"]),
        ("rest_source_refuses_functions", ["2.9.25", "2.12.0"], ["2.10.0", "2.11.17"]),
        ("mapping_check_knows_left_and_right", ["2.12.15", "2.14.6"], ["2.14.7", "2.15.0"]),
        ("republish_time_stamp", ["2.9.25"], ["2.10.0"]),
        (
            "republish_suppresses_invalid_subject",
            ["2.10.27", "2.11.17", "2.12.8", "2.14.0"],
            ["2.12.9", "2.14.1", "2.15.0"],
        ),
        ("source_record_names_consumer", ["2.12.15"], ["2.14.0", "2.15.1"]),
        ("delete_markers_turn_on_what_they_need", ["2.10.27", "2.11.1"], ["2.11.2", "2.12.0", "2.15.1"]),
        (
            "schedules_exclude_counters_and_discard_new",
            ["2.11.17", "2.12.9", "2.14.1"],
            ["2.12.10", "2.14.2", "2.15.0"],
        ),
        ("implicit_republish", ["2.10.27", "2.11.10", "2.12.1"], ["2.11.11", "2.12.2", "2.14.0", "2.15.1"]),
    ],
)
def test_first_versions_with_back_ports(feature: str, without: list[str], with_it: list[str]) -> None:
    assert [getattr(dialect(text), feature) for text in without] == [False] * len(without)
    assert [getattr(dialect(text), feature) for text in with_it] == [True] * len(with_it)


def test_a_feature_ends_where_until_says() -> None:
    feature = Feature(since=((2, 10, 5),), until=((2, 11, 3), (2, 12, 1)))
    holds = [
        feature.holds(version) for version in ((2, 10, 4), (2, 10, 5), (2, 11, 2), (2, 11, 3), (2, 12, 0), (2, 14, 0))
    ]
    assert holds == [False, True, True, False, True, False]


def test_dialects_are_values() -> None:
    assert pickle.loads(pickle.dumps(NEWEST)) == NEWEST
    assert dialect("2.10.27") == dialect("2.10")
    assert len({dialect("2.10.27"), dialect("2.10"), NEWEST}) == 2
