"""The configurations of a restored stream, without a server."""

from __future__ import annotations

from typing import Any

from nats_bridge_spark.restore.configuration import (
    MARK,
    RestoreMark,
    commands,
    consumer_config,
    restored_config,
    restoring_config,
    unsupported,
)

ORDERS: dict[str, Any] = {
    "name": "ORDERS",
    "subjects": ["orders.>"],
    "retention": "limits",
    "max_msgs": 1000,
    "max_age": 3600 * 10**9,
    "max_msgs_per_subject": 5,
    "discard": "new",
    "storage": "file",
    "num_replicas": 3,
    "duplicate_window": 120 * 10**9,
    "deny_purge": True,
    "sealed": False,
    "first_seq": 10,
    "sources": [{"name": "A"}],
    "republish": {"src": ">", "dest": "r.>"},
    "metadata": {"team": "a", "_nats.ver": "2.15.3"},
}
FROM = RestoreMark("ORDERS", "2026-01-01T00:00:00Z")


def test_the_end_is_what_was_saved_but_for_native_copying() -> None:
    config = restored_config(ORDERS, "ORDERS", None, ())
    assert config == {
        **{name: value for name, value in ORDERS.items() if name not in ("sources", "first_seq")},
        "metadata": {"team": "a"},
    }
    renamed = restored_config(ORDERS, "OLD", ["old.>"], ("republish", "metadata"))
    assert (renamed["name"], renamed["subjects"]) == ("OLD", ["old.>"])
    assert not {"republish", "metadata"}.intersection(renamed)


def test_a_mirror_gets_a_subject_of_its_own() -> None:
    assert restored_config({"name": "COPY", "mirror": {"name": "ORDERS"}}, "COPY", None, ())["subjects"] == ["COPY"]


def test_until_then_it_is_closed_and_keeps_everything() -> None:
    config = restoring_config(restored_config(ORDERS, "ORDERS", None, ()), FROM, "00000000")
    assert config == {
        "name": "ORDERS",
        "subjects": ["nats-bridge.restore.ORDERS.00000000.>", "nats-bridge.restore.ORDERS"],
        "subject_transform": {"src": "nats-bridge.restore.ORDERS.*.>", "dest": ">"},
        "retention": "limits",
        "max_msgs_per_subject": 5,
        "storage": "file",
        "num_replicas": 1,
        "duplicate_window": 10**8,
        "metadata": {"team": "a", **FROM.metadata(None)},
    }
    for version in ("2.10.27", "2.11.17", "2.12.15", "2.14.10", "2.15.3"):
        assert unsupported(config, version) == ((), "")


def test_the_mark_is_read_again() -> None:
    assert RestoreMark.of({"metadata": FROM.metadata(7)}) == (FROM, 7)
    assert RestoreMark.of({"metadata": FROM.metadata(None)}) == (FROM, None)
    for config in ({}, {"metadata": {}}, {"metadata": {MARK: "{"}}, {"metadata": {MARK: "[]"}}):
        assert RestoreMark.of(config) == (None, None)


def test_what_an_older_server_does_not_know_is_named() -> None:
    config = {**restored_config(ORDERS, "ORDERS", None, ()), "allow_msg_ttl": True, "allow_batched": True}
    assert unsupported(config, "2.15.3") == ((), "")
    assert unsupported(config, "2.12.15") == (("allow_batched",), "")
    assert unsupported(config, "2.10.27") == (("allow_msg_ttl", "allow_batched"), "")
    assert unsupported(config, "99.1.0") == ((), "")
    assert unsupported({**config, "subjects": ["a..b"]}, "2.15.3") == ((), "invalid subject (10052)")


def test_a_consumer_begins_after_what_it_had_acknowledged() -> None:
    saved = {"durable_name": "work", "deliver_policy": "by_start_time", "opt_start_time": "2026-01-01T00:00:00Z"}
    assert consumer_config(saved, 0, 100) == {**saved, "metadata": {}}
    resumed = {"durable_name": "work", "deliver_policy": "by_start_sequence", "metadata": {}}
    assert consumer_config(saved, 40, 100) == {**resumed, "opt_start_seq": 41}
    assert consumer_config(saved, 140, 100) == {**resumed, "opt_start_seq": 101}


def test_a_stream_or_a_consumer_that_gives_commands_is_not_restored() -> None:
    commanding = {**ORDERS, "republish": {"src": ">", "dest": "$JS.API.>"}}
    _, refusal = unsupported(restored_config(commanding, "ORDERS", None, ()), "2.15.1")
    assert refusal == "it republishes to '$JS.API.>', where each message is a command to the server (republish)"
    assert not unsupported(restored_config(commanding, "ORDERS", None, ("republish",)), "2.15.1")[1]
    assert commands({"deliver_subject": "$JS.API.STREAM.PURGE.VICTIM"})
    assert not commands({"deliver_subject": "deliver.orders"})
    assert not commands({})
