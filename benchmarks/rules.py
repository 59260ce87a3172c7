"""Against the number of rules in one sidecar: 1, 10 and 100, 128-byte messages on 1,000 subjects, live.

The load is the same in all; its subjects are divided into as many groups as there are rules, `bench.GROUP.N`, and the
group changes with every message.

* *A stream each*: the usual way to have many rules. Each group has a stream and a rule of its own. The target is
  compared with one stream with one rule. Native republish of the same streams shows what streams cost the server.
* *One stream*: one rule per group, which the server selects by the consumer's filter. A subscriber with the same
  consumers that republishes nothing shows what they cost the server alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from benchmarks.figures import Ratio, Report
from benchmarks.load import chunks, publish_chunks
from benchmarks.processes import PATIENT, REPUBLISH, Program, configuration, cpu_seconds, running_bridge
from benchmarks.raw_socket import RawSocket
from benchmarks.republish_arm import Arm, measure
from benchmarks.rounds import HEADER
from benchmarks.workers import Send, worker
from nats_conformance.native_servers import NativeServer, fetch

_RULES = (1, 10, 100)
_MESSAGES = 400_000
_ROUNDS = 3
_LEAST = 0.8  # of the throughput of one rule
_SIGN = b" $JS.ACK."


@dataclass(frozen=True, slots=True)
class _Way:
    """How many rules there are, and whether each has a stream of its own."""

    rules: int
    streams: bool

    @property
    def name(self) -> str:
        where = "a stream each" if self.streams else "one stream"
        return f"{self.rules} rules, {where}" if self.rules > 1 else "1 rule"

    def stream(self, group: int) -> str:
        return f"BENCH_{group}" if self.streams else "BENCH"


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round."""
    rounds, messages = (2, _MESSAGES // 4) if quick else (_ROUNDS, _MESSAGES)
    each = {rules: _Way(rules, streams=True) for rules in _RULES}
    shared = {rules: _Way(rules, streams=False) for rules in _RULES[1:]}
    native = {rules: Arm(f"{way.name}: native", _nothing, is_native=True) for rules, way in each.items()}
    ours = {way: Arm(f"{way.name}: nats-bridge", _sidecar(way)) for way in (*each.values(), *shared.values())}
    alone = {way: Arm(f"{way.name}: consumers only", _nothing) for way in shared.values()}
    for number in range(1, rounds + 1):
        say(f"rules: round {number} of {rounds}")
        for rules, way in each.items():
            measure(native[rules], messages, chunks(messages, groups=rules), place=_server(version, way, native=True))
        for way, arm in ours.items():
            measure(arm, messages, chunks(messages, groups=way.rules), place=_server(version, way))
        for way, arm in alone.items():
            _measure_consumers(arm, messages, way, version)
    one = each[1]
    ratios = [
        Ratio(f"nats-bridge over native, {each[rules].name}", ours[each[rules]].rate / native[rules].rate)
        for rules in _RULES
    ]
    for way in (*each.values(), *shared.values()):
        if way is not one:
            target = _LEAST if way.streams else None
            ratios.append(Ratio(f"nats-bridge, {way.name}, over 1 rule", ours[way].rate / ours[one].rate, target))
    ratios += [
        Ratio(f"native, {each[rules].name}, over 1 rule", native[rules].rate / native[1].rate) for rules in _RULES[1:]
    ]
    ratios += [Ratio(f"{arm.name}, over nats-bridge", arm.rate / ours[way].rate) for way, arm in alone.items()]
    points = [arm.point("native", rules) for rules, arm in native.items()]
    points += [ours[way].point("nats-bridge, a stream each", rules) for rules, way in each.items()]
    points += [ours[way].point("nats-bridge, one stream", rules) for rules, way in ({1: one} | shared).items()]
    points += [alone[way].point("consumers only, one stream", rules) for rules, way in shared.items()]
    arms = (*native.values(), *ours.values(), *alone.values())
    return Report(HEADER, [arm.row() for arm in arms], ratios, points=points)


def _nothing(_: str) -> nullcontext[None]:
    return nullcontext(None)


def _sidecar(way: _Way) -> Callable[[str], AbstractContextManager[Program]]:
    return lambda url: running_bridge(bridge_config(url, way.rules, streams=way.streams))


def bridge_config(url: str, rules: int, *, streams: bool) -> str:
    """The sidecar's configuration file.

    Args:
        url: the server.
        rules: how many.
        streams: whether each has a stream of its own.
    """
    way = _Way(rules, streams)
    each = [
        {
            **REPUBLISH,
            "name": f"bench-{group}",
            "stream": way.stream(group),
            "republish": {"src": f"bench.{group}.>", "dest": f"bridge.bench.{group}.>"},
        }
        for group in range(rules)
    ]
    return configuration(url, *each)


@contextmanager
def _server(version: str, way: _Way, *, native: bool = False) -> Iterator[NativeServer]:
    with NativeServer(binary=fetch(version), config=PATIENT) as server:
        with RawSocket(server.port) as connection:
            for group in range(way.rules if way.streams else 1):
                subject = f"bench.{group}.>" if way.streams else "bench.>"
                config: dict[str, object] = {"name": way.stream(group), "subjects": [subject], "storage": "memory"}
                if native:
                    config["republish"] = {"src": subject, "dest": f"native.{subject}"}
                connection.request(f"$JS.API.STREAM.CREATE.{way.stream(group)}", config)
        yield server


def _measure_consumers(arm: Arm, messages: int, way: _Way, version: str) -> None:
    """A round with the consumers that the rules would have, and nothing that is republished."""
    with _server(version, way) as server, worker("consumers", _consume, server.port, way.rules, messages) as consumers:
        consumers.receive()
        began, used = time.monotonic(), cpu_seconds(server.pid)
        publish_chunks(server.port, chunks(messages, groups=way.rules))
        arm.rates.append(messages / (consumers.receive() - began))
        arm.server_cpu.append((cpu_seconds(server.pid) - used) / messages * 1e6)


def _consume(send: Send, port: int, rules: int, messages: int) -> None:
    with RawSocket(port) as connection:
        for group in range(rules):
            connection.send(b"SUB _deliver.%d %d\r\n" % (group, group + 1))
            config = {
                "name": f"bench_{group}",
                "deliver_subject": f"_deliver.{group}",
                "ack_policy": "none",
                "filter_subject": f"bench.{group}.>",
                "deliver_policy": "all",
            }
            connection.request(
                f"$JS.API.CONSUMER.CREATE.BENCH.bench_{group}", {"stream_name": "BENCH", "config": config}
            )
        send("subscribed")
        count, tail = 0, b""
        while count < messages:
            data = tail + connection.receive()
            count += data.count(_SIGN)
            tail = data[-(len(_SIGN) - 1) :]
        send(time.monotonic())
