"""What `check --permissions` prints, without any server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click import UsageError
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.cli.check import check_command
from nats_bridge.errors import ConfigError
from nats_bridge.kinds.copying.entry_subjects import common_subject
from nats_bridge.permissions.denying import denied_subjects
from nats_bridge.permissions.granting import grants_of
from nats_bridge.permissions.refusals import Refusals
from nats_bridge.permissions.stream_facts import StreamFacts
from nats_bridge.settings import load
from nats_transforms.subject import collide, matches

RULES = """
name: side
connections:
  default: {{servers: ["nats://h:1"], inbox_prefix: _IN_side}}
  west: {{servers: ["nats://w:1"]}}
rules: [{rules}]
"""
MONITOR = "{name: a, kind: republish, stream: S, republish: {src: x.*, dest: 'out.{{partition(3,1)}}.$1'}}"
COPY = "{name: c, kind: sources, stream: T, sources: [{name: S, filter_subject: x.>}]}"


def _file(tmp_path: Path, *rules: str) -> Path:
    path = tmp_path / "bridge.yaml"
    path.write_text(RULES.format(rules=", ".join(rules)), "utf-8")
    return path


def _printed(path: Path, *options: str) -> str:
    result = CliRunner().invoke(check_command, ["-c", str(path), "--permissions", *options], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.output


def test_a_block_to_paste(tmp_path: Path) -> None:
    text = _printed(_file(tmp_path, MONITOR))
    plain = [" ".join(line.split()) for line in text.splitlines()]
    assert plain[:4] == [
        "# connection 'default': the permissions of its user",
        "permissions: {",
        "publish: { allow: [",
        '"out.*.*" # publishes (a)',
    ]
    assert (
        '"$JS.API.CONSUMER.DELETE.S.*" # OPTIONAL: removes consumers of short reads at once (a);'
        " without it they stay on the server for some seconds more"
    ) in plain
    assert '"_IN_side.>" # answers and deliveries' in plain
    assert "west" not in text, "no rule uses it"


@pytest.mark.parametrize(("way", "prefix"), [("domain: leaf", "$JS.leaf.API"), ("api_prefix: JSA.API", "JSA.API")])
def test_requests_and_leases_begin_with_the_connections_prefix(tmp_path: Path, way: str, prefix: str) -> None:
    path = tmp_path / "bridge.yaml"
    connections = f'{{default: {{servers: ["nats://h:1"], {way}}}}}'
    path.write_text(f"name: side\nconnections: {connections}\nleadership: {{}}\nrules: [{MONITOR}]\n", "utf-8")
    (found,) = grants_of(load(path))
    published, lease = found.subjects("publish"), "$KV.NATS_BRIDGE.lease.side.*"
    assert {f"{prefix}.STREAM.INFO.S", f"{prefix}.{lease}"} <= {*published}
    assert not [each for each in published if each.startswith(("$JS.API", "$KV"))]
    assert {lease, f"{prefix}.{lease}"} <= {*found.subjects("subscribe")}
    denied = denied_subjects(["*.*.>"], published[1:], prefix)
    assert {f"{prefix}.STREAM.PURGE.*", "$JS.API.>"} <= {*denied}
    assert not any(collide(each.encode(), f"{prefix}.STREAM.INFO.S".encode()) for each in denied)


def test_a_command_of_nsc_to_run(tmp_path: Path) -> None:
    lines = [" ".join(line.split()) for line in _printed(_file(tmp_path, MONITOR), "--nsc").splitlines()]
    assert lines[:3] == [
        "# connection 'default': the permissions of its user, who has none so far",
        "permissions=(",
        "--allow-pub 'out.*.*' # publishes (a)",
    ]
    assert lines[-2:] == [")", 'nsc edit user --name NAME "${permissions[@]}"']


def test_nsc_is_for_permissions(tmp_path: Path) -> None:
    result = CliRunner().invoke(check_command, ["-c", str(_file(tmp_path, MONITOR)), "--nsc"], standalone_mode=False)
    assert isinstance(result.exception, UsageError)


def test_at_least_once_may_acknowledge_and_nothing_else_may(tmp_path: Path) -> None:
    confirmed = MONITOR.replace("stream: S,", "stream: S, delivery: at_least_once,")
    ack = "$JS.ACK.S.side_a.>"
    assert ack not in _printed(_file(tmp_path, MONITOR))
    assert ack in _printed(_file(tmp_path, confirmed))


def test_what_a_wider_line_covers_is_left_out_and_the_reasons_stay(tmp_path: Path) -> None:
    wide = MONITOR.replace("name: a", "name: b").replace("x.*", "x.>").replace("'out.{{partition(3,1)}}.$1'", "out.>")
    (connection,) = grants_of(load(_file(tmp_path, MONITOR, wide)))
    lines = {line.subject: line for line in connection.grants}
    assert "out.*.*" not in lines
    assert lines["out.>"].reasons == (("publishes", ("b", "a")),)


def test_what_can_be_done_without_hides_nothing_that_cannot(tmp_path: Path) -> None:
    (connection,) = grants_of(load(_file(tmp_path, MONITOR)))
    lines = {line.subject: line.optional for line in connection.grants}
    assert lines["$JS.API.CONSUMER.DELETE.S.side_a"] is False
    assert lines["$JS.API.CONSUMER.DELETE.S.*"] is True


def _subscriptions(path: Path, facts: dict[tuple[str, str], StreamFacts] | None = None) -> list[str]:
    (connection,) = grants_of(load(path, {}), facts)
    return connection.subjects("subscribe")


def test_known_streams_make_it_exact(tmp_path: Path) -> None:
    path = _file(tmp_path, COPY)
    assert "x.>" in _subscriptions(path), "by the rule's own subjects"
    facts = {("default", "T"): StreamFacts(("x.a", "x.b.*"), "limits", counts_copies=True)}
    assert {"x.a", "x.b.*"} < set(_subscriptions(path, facts))
    assert "x.>" not in _subscriptions(path, facts)
    facts = {("default", "T"): StreamFacts(("x.a",), "limits", counts_copies=False)}
    assert "x.a" not in _subscriptions(path, facts), "every copy is confirmed one by one there"


def test_only_work_queue_and_interest_streams_have_their_consumers_listed(tmp_path: Path) -> None:
    path = _file(tmp_path, MONITOR.replace("stream: S,", "stream: S, durable: false,"))

    def grants(retention: str | None) -> dict[str, bool]:
        facts = {("default", "S"): StreamFacts(("x.>",), retention, counts_copies=True)} if retention else None
        (connection,) = grants_of(load(path, {}), facts)
        return {grant.subject: grant.optional for grant in connection.grants}

    listed = "$JS.API.CONSUMER.LIST.S"
    assert grants(None)[listed] is True
    assert grants("workqueue")[listed] is False
    assert listed not in grants("limits")


@pytest.mark.parametrize(
    ("source", "stream"),
    [
        ("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ORDERS.*", "ORDERS"),
        ("$JS.EVENT.ADVISORY.CONSUMER.*.ORDERS.c", "*"),
        ("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", "*"),
        ("$JS.EVENT.ADVISORY.>", "*"),
    ],
)
def test_attached_messages_are_read_from_no_other_stream(source: str, stream: str, tmp_path: Path) -> None:
    destination = "dlq.>" if source.endswith(">") else "dlq"
    rule = f"{{name: d, kind: advisories, attach_message: true, republish: {{src: {source}, dest: '{destination}'}}}}"
    assert f'"$JS.API.STREAM.MSG.GET.{stream}"' in _printed(_file(tmp_path, rule))


def test_two_connections_each_have_their_own(tmp_path: Path) -> None:
    text = _printed(_file(tmp_path, MONITOR.replace("stream: S,", "stream: S, to: west,")))
    default, west = text.split("# connection 'west'")
    assert '"out.*.*"' not in default
    assert '"out.*.*"' in west
    assert "with an inbox_prefix of its own" in west
    assert '"_IN_side.>" ' in west, "to see whether both reach the same account"


def test_only_the_connection_of_leases_needs_their_bucket(tmp_path: Path) -> None:
    path = _file(tmp_path, MONITOR)
    path.write_text(path.read_text("utf-8") + "leadership: {connection: west, bucket: L}\n", "utf-8")
    default, west = grants_of(load(path, {}))
    assert [subject for subject in default.subjects("publish") if "KV_L" in subject or "$KV" in subject] == []
    assert [(grant.way, grant.subject) for grant in west.grants if not grant.optional] == [
        ("publish", "$KV.L.lease.side.*"),
        ("publish", "$JS.API.STREAM.INFO.KV_L"),
        ("publish", "$JS.API.STREAM.MSG.GET.KV_L"),
        ("subscribe", "_INBOX.>"),
    ]
    assert "$JS.API.STREAM.CREATE.KV_L" in west.subjects("publish")


def test_a_configuration_that_is_wrong_is_said(tmp_path: Path) -> None:
    path = _file(tmp_path, MONITOR.replace("kind: republish", "kind: repblish"))
    result = CliRunner().invoke(check_command, ["-c", str(path), "--permissions"], standalone_mode=False)
    assert isinstance(result.exception, ConfigError)


_PATTERN: Any = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4).flatmap(
    lambda tokens: st.sampled_from([tokens, [*tokens, ">"], [">"]])
)


@given(_PATTERN, _PATTERN)
def test_a_common_subject_matches_both_and_is_found_where_there_is_one(one: list[str], other: list[str]) -> None:
    a, b = ".".join(one).encode(), ".".join(other).encode()
    found = common_subject([a], [b])
    assert (found is not None) == collide(a, b)
    if found is not None:
        assert matches(found, a)
        assert matches(found, b)


DEPUTY = "{name: d, kind: republish, stream: S, from: west, republish: {src: in.*.>, dest: '$1.>'}}"


def test_a_destination_that_messages_choose_is_denied_commands(tmp_path: Path) -> None:
    """All but those that the user needs itself, as a `deny` wins over every `allow`."""
    (west, default) = sorted(grants_of(load(_file(tmp_path, DEPUTY))), key=lambda each: each.connection)[::-1]
    assert west.denied == ()
    assert {"$JS.API.STREAM.DELETE.*", "$JS.*.API.>", "$JS.ACK.>", "_R_.>"} <= set(default.denied)
    assert "$JS.API.STREAM.INFO.*" not in default.denied, "it looks whether the accounts are the same"
    both = {each.connection: each for each in grants_of(load(_file(tmp_path, DEPUTY, COPY)))}["default"]
    assert {"$JS.ACK.>", "$JS.FC.>", "$JS.API.CONSUMER.CREATE.>"}.isdisjoint(both.denied), "the copies need them"
    assert "$JS.API.STREAM.DELETE.*" in both.denied
    needed = [grant.subject for grant in both.grants if grant.way == "publish" and grant.subject != "*.>"]
    assert not [one for one in both.denied for other in needed if collide(one.encode(), other.encode())]
    assert "], deny: [  # commands to the server, which no message may choose" in _printed(_file(tmp_path, DEPUTY))


def test_a_destination_that_begins_with_a_word_needs_no_deny(tmp_path: Path) -> None:
    assert "deny" not in _printed(_file(tmp_path, MONITOR, COPY))


def test_check_warns_of_a_destination_that_messages_choose(tmp_path: Path) -> None:
    result = CliRunner().invoke(check_command, ["-c", str(_file(tmp_path, DEPUTY, MONITOR))], standalone_mode=False)
    assert result.return_value == 0
    (warning,) = [line for line in result.output.splitlines() if line.startswith("but")]
    assert warning == (
        "but d: a message on 'in.$JS.API.STREAM.DELETE.ORDERS' would become '$JS.API.STREAM.DELETE.ORDERS', a command"
        " to the server: the rule does not publish it, and counts it as reserved; a destination that begins with a word"
        " cannot be led there"
    )
    excluded = DEPUTY.replace("name: d,", "name: d, exclude: ['in.$JS.>', 'in._R_.>', 'in.$GR.>', 'in._GR_.>'],")
    result = CliRunner().invoke(check_command, ["-c", str(_file(tmp_path, excluded))], standalone_mode=False)
    assert "but" not in result.output


def test_a_refusal_is_an_error_unless_everything_works_without_it(tmp_path: Path) -> None:
    refusals = Refusals(load(_file(tmp_path, MONITOR)))

    def effect(way: str, subject: str, connection: str = "default") -> str:
        return refusals.effect(connection, f"nats: permissions violation for {way} to {subject}")

    assert effect("publish", '"$JS.API.CONSUMER.DELETE.S.xyz"') == (
        "removes consumers of short reads at once; without it they stay on the server for some seconds more"
    )
    assert effect("publish", '"$JS.API.CONSUMER.DELETE.S.side_a"') == ""
    assert effect("publish", '"out.1.2"') == ""
    assert effect("subscription", '"_IN_side.a.*"') == ""
    assert effect("subscription", '"$JS.EVENT.ADVISORY.STREAM.CREATED.S"').startswith(
        "receives the creation of stream S; without it"
    )
    assert effect("publish", '"$JS.API.CONSUMER.DELETE.S.xyz"', "elsewhere") == ""
    assert refusals.effect("default", "nats: authorization violation") == ""
