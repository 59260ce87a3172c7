"""Where consumers begin in a copy, and what their filters are there, without a server."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.errors import ConfigError
from nats_bridge.jobs.failover.account import AccountState, load_account, save_account
from nats_bridge.jobs.failover.copied_stream import CopiedStream, Entry
from nats_bridge.jobs.failover.filters import MovedFilters, moved_filters
from nats_bridge.jobs.failover.plan import ranges
from nats_bridge.jobs.failover.positions import TargetPosition
from nats_bridge.jobs.failover.way_back import way_back
from nats_transforms.sourcing import Sourcing, compile_sourcing
from nats_transforms.subject import matches


def sourcing(*transforms: tuple[str, str], name: str = "ORDERS", **entry: Any) -> Sourcing:
    texts = [{"src": source, "dest": destination} for source, destination in transforms]
    exclude = [each.encode() for each in entry.pop("exclude", ())]
    return compile_sourcing({"name": name, "subject_transforms": texts, **entry}, exclude=exclude)


def moved(filters: list[str], *entries: Sourcing, others: tuple[Sourcing, ...] = ()) -> MovedFilters:
    return moved_filters(filters, ["orders.>"], entries, others)


@pytest.mark.parametrize(
    ("filters", "transforms", "expected"),
    [
        ([], [], ()),
        (["orders.eu.*"], [], ("orders.eu.*",)),
        ([], [("orders.>", "copy.>")], ("copy.>",)),
        (["orders.eu.*"], [("orders.>", "copy.>")], ("copy.eu.*",)),
        (["orders.eu.7"], [("orders.*.*", "{{wildcard(2)}}.at.$1")], ("7.at.eu",)),
        (["orders.eu.*"], [("orders.*.*", "{{wildcard(2)}}.at.$1")], ("*.at.eu",)),
        (["orders.eu.*", "orders.us.*"], [("orders.*.*", "$1.$2")], ("eu.*", "us.*")),
        (["orders.>"], [("orders.eu.*", "eu.$1"), ("orders.us.*", "")], ("eu.*", "orders.us.*")),
        (["orders.eu.*", "orders.us.*"], [("orders.eu.*", "all.$1"), ("orders.us.*", "all.$1")], ("all.*",)),
        ([], [("orders.*.*", "{{partition(3,2)}}.$1")], ("*.*",)),
    ],
)
def test_filters_become_what_the_subjects_become(
    filters: list[str], transforms: list[tuple[str, str]], expected: tuple[str, ...]
) -> None:
    found = moved(filters, sourcing(*transforms))
    assert (found.filters, found.surplus) == (expected, ())


@pytest.mark.parametrize(
    ("filters", "transforms", "surplus"),
    [
        (["orders.eu.*"], [("orders.eu.*", "all.$1"), ("orders.us.*", "all.$1")], ("orders.us.* to all.$1",)),
        (["orders.eu.*"], [("orders.*.*", "all.$2")], ("orders.*.* to all.$2",)),
        (["orders.*.7"], [("orders.*.*", "{{partition(3,2)}}.$1")], ("orders.*.* to {{partition(3,2)}}.$1",)),
    ],
)
def test_a_copy_in_which_a_filter_selects_more_is_named(
    filters: list[str], transforms: list[tuple[str, str]], surplus: tuple[str, ...]
) -> None:
    assert moved(filters, sourcing(*transforms)).surplus == surplus


def test_copies_of_other_streams_on_the_same_subjects_are_named() -> None:
    other = sourcing(("legacy.>", "copy.eu.>"), name="LEGACY")
    own = sourcing(("orders.>", "copy.>"))
    assert moved(["orders.eu.*"], own, others=(other,)).surplus == ("legacy.> to copy.eu.> of LEGACY",)
    assert moved(["orders.us.*"], own, others=(other,)).surplus == ()


@pytest.mark.parametrize(
    ("filters", "entry", "uncopied"),
    [
        ([], sourcing(), ()),
        ([], sourcing(("orders.eu.*", "eu.$1")), ("orders.>",)),
        (["orders.eu.*"], sourcing(("orders.eu.*", "eu.$1")), ()),
        (["orders.eu.*", "orders.us.*"], sourcing(("orders.eu.*", "eu.$1")), ("orders.us.*",)),
        (["orders.eu.*"], sourcing(exclude=["orders.*.test"]), ("orders.eu.test",)),
        (["orders.us.*"], sourcing(filter_subject="orders.eu.*"), ("orders.us.*",)),
    ],
)
def test_what_is_read_and_not_copied_is_named(filters: list[str], entry: Sourcing, uncopied: tuple[str, ...]) -> None:
    assert moved(filters, entry).uncopied == uncopied
    assert moved(filters, entry).is_any == (filters != ["orders.us.*"])


TOKENS = st.sampled_from(["a", "b", "c"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=3).map(lambda tokens: ".".join(["orders", *tokens]))
FILTERS = st.lists(TOKENS | st.just("*"), max_size=3).map(lambda tokens: ".".join(["orders", *tokens, ">"]))
TRANSFORMS = st.sampled_from(
    [
        [("orders.>", "copy.>")],
        [("orders.*.>", "$1.>")],
        [("orders.*.*", "$2.$1")],
        [("orders.*.*", "all.$2")],
        [("orders.a.>", "all.>"), ("orders.b.>", "all.>")],
        [("orders.*.*", "{{partition(2,1)}}.$2")],
        [("orders.a.*", ""), ("orders.b", "x")],
        [],
    ]
)


@given(FILTERS, SUBJECTS, TRANSFORMS)
def test_without_a_surplus_the_filters_select_the_same_messages(
    one: str, subject: str, transforms: list[tuple[str, str]]
) -> None:
    entry = sourcing(*transforms)
    found = moved([one], entry)
    destination = entry.destination(subject.encode())
    if destination is None:
        return
    is_read = matches(subject.encode(), one.encode())
    selected = not found.filters or any(matches(destination, each.encode()) for each in found.filters)
    if not found.filters and transforms:
        selected = is_read  # none of the copies is for it
    assert selected or not is_read
    assert is_read or not selected or found.surplus


@given(st.permutations(range(1, 13)), st.integers(0, 14), st.integers(0, 6), st.sets(st.integers(1, 12)))
def test_every_message_above_the_floor_is_received(stored: list[int], floor: int, more: int, unread: set[int]) -> None:
    """Copies in any order, with messages of others between them."""
    place = TargetPosition(floor, floor + more, lambda _: True, lambda subject: subject != b"unread")
    layout = [(2 * n, number, b"unread" if number in unread else b"read") for n, number in enumerate(stored, 1)]
    for copy in reversed(layout):
        place.see_before(*copy)
    for at, number, subject in layout:
        place.see_after(at - 1, 0, b"read")
        place.see_after(at, number, subject)
    begins = place.begins
    read = [(at, number) for at, number, subject in layout if subject == b"read"]
    assert all(at >= begins for at, number in read if number > floor)
    received = [number for at, number in read if at >= begins]
    assert sorted([*place.again, *place.redelivered]) == sorted(n for n in received if n <= floor + more)
    assert place.ahead == sum(number > floor + more for number in received)
    # Nothing acknowledged comes again but what is stored behind something that is not.
    due = [at for at, number in read if number > floor]
    assert all(at > min(due) for at, number in read if number in place.again)


def test_in_order_the_next_message_is_the_first() -> None:
    place = TargetPosition(5, 7, lambda _: True, lambda _: True)
    for number in range(10, 0, -1):
        place.see_before(100 + number, number, b"a")
    assert place.begins == 106


def test_ranges() -> None:
    assert ranges([7, 1, 2, 3, 5]) == ((1, 3), (5, 5), (7, 7))
    assert ranges([]) == ()


def copied(*entries: Sourcing, **source: Any) -> CopiedStream:
    config = {"name": "ORDERS", "subjects": ["orders.>"], **source}
    made = CopiedStream({"config": config}, {"config": {"name": "COPY"}})
    made.entries = [Entry(each, each.is_own, b"", "rule") for each in entries]
    return made


@pytest.mark.parametrize(
    ("entry", "transforms"),
    [
        (sourcing(), [("orders.>", "")]),
        (sourcing(filter_subject="orders.eu.*"), [("orders.eu.*", "")]),
        (sourcing(("orders.>", "copy.>")), [("copy.>", "orders.>")]),
        (sourcing(("orders.*.*", "$2.x.$1"), ("orders.a", "")), [("*.x.*", "orders.$2.$1"), ("orders.a", "")]),
    ],
)
def test_the_way_back_begins_behind_the_last_copy(entry: Sourcing, transforms: list[tuple[str, str]]) -> None:
    back = way_back(copied(entry), 90).entry
    assert back is not None
    assert (back["name"], back["opt_start_seq"]) == ("COPY", 91)
    texts = [(each["src"], each["dest"]) for each in back["subject_transforms"]]
    assert texts == [*transforms, (texts[-1][0], "")]
    assert "91" in texts[-1][0]
    compile_sourcing(back)


def test_why_there_is_no_way_back() -> None:
    lossy = way_back(copied(sourcing(("orders.*.*", "all.$2"))), 90)
    assert (lossy.entry, "not reversible" in lossy.obstacle or "cannot be reversed" in lossy.obstacle) == (None, True)
    assert way_back(copied(sourcing()), 0).obstacle == "COPY holds no copy of ORDERS"
    assert "every subject" in way_back(copied(sourcing(), subjects=[">"]), 90).obstacle


def test_an_account_comes_back_from_its_file(tmp_path: Path) -> None:
    info = {"config": {"name": "ORDERS"}, "created": "2026-01-01T00:00:00Z"}
    account = AccountState(
        "2026-01-02T00:00:00Z", {"ORDERS": info}, {"ORDERS": [{"name": "c"}]}, ("AWAY",), {"ORDERS": 1}
    )
    save_account(account, tmp_path / "west.json")
    assert load_account(tmp_path / "west.json") == account
    assert [file.name for file in tmp_path.iterdir()] == ["west.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"taken": "", "nats-bridge failover 2": []})])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "west.json"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"west\.json: was not written by nats-bridge failover --save"):
        load_account(file)
    with pytest.raises(ConfigError, match=r"none\.json: No such file"):
        load_account(tmp_path / "none.json")
