"""A simulated nats-server: the client protocol, subscriptions, and streams.

The unmodified sidecar speaks the protocol over the network. The scenario publishes and listens without a connection.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from nats_conformance.catalogue.case import Message
from nats_conformance.implementations.stream_model import Refused, header, ingested
from nats_transforms.dialect import server_dialect
from nats_transforms.subject import matches
from tests.simulation.api import PREFIX, SimulatedApi
from tests.simulation.consumers import PushConsumer
from tests.simulation.network import Network, Reachable, Wire
from tests.simulation.streams import KeptStream
from tests.simulation.world import World

_WILDCARD = re.compile(rb"[*>]")
_MAX_PAYLOAD = 1024 * 1024
_NO_RESPONDERS = b"NATS/1.0 503\r\n\r\n"
_SOURCE = b"Nats-Stream-Source"
_API = 0.0004  # seconds until the API has answered
_STORES = 0.0002  # seconds until a stream has stored and answered

Answered = Callable[[dict[str, Any]], None]


class ClientSubscription:
    """A subscription of a client."""

    def __init__(self, client: ConnectedClient, subject: bytes, sid: bytes) -> None:
        self.client, self.subject, self.sid = client, subject, sid
        self._is_wild = _WILDCARD.search(subject) is not None
        self._begin = _WILDCARD.split(subject, maxsplit=1)[0]

    def takes(self, subject: bytes) -> bool:
        """Return whether it matches a subject."""
        is_like = self._is_wild and subject.startswith(self._begin) and matches(subject, self.subject)
        return subject == self.subject or is_like


class ConnectedClient:
    """One connection of a client: its protocol, and what is written to it."""

    def __init__(self, server: SimulatedServer, wire: Wire, number: int) -> None:
        self.number, self.wire = number, wire
        self.subscriptions: dict[bytes, ClientSubscription] = {}
        self.is_closed = False
        self._server = server
        self._unread, self._out = b"", list[bytes]()
        self.write(b"INFO %b\r\n" % json.dumps(server.info(number)).encode())

    def write(self, data: bytes) -> None:
        self._out.append(data)
        self._server.dirty.append(self)

    def flush(self) -> None:
        if self._out:
            data, self._out = b"".join(self._out), []
            if not self.is_closed:
                self.wire.to_client.send(data)

    def ended(self) -> None:
        """Note that the peer has closed the connection, or that it is reset."""
        if self.is_closed:
            return
        self.is_closed = True
        self.wire.to_server.drop()
        self._server.forget(self)

    def received(self, data: bytes) -> None:
        if self.is_closed or not self._server.is_up:
            return
        data, position = self._unread + data, 0
        while not self.is_closed:
            if (end := data.find(b"\r\n", position)) < 0:
                break
            fields, start = data[position:end].split(), end + 2
            if fields[0] in (b"PUB", b"HPUB"):
                stop = start + int(fields[-1])
                if len(data) < stop + 2:
                    break
                position = stop + 2
                self._publish(fields, data[start:stop])
            else:
                self._handle(fields, data[position:end])
                position = start
        self._unread = data[position:]
        self._server.flush()

    def _publish(self, fields: list[bytes], body: bytes) -> None:
        if fields[0] == b"HPUB":
            size = int(fields[-2])
            reply = fields[2] if len(fields) == 5 else b""
            message = Message(fields[1], body[:size], body[size:])
        else:
            reply = fields[2] if len(fields) == 4 else b""
            message = Message(fields[1], b"", body)
        self._server.observe(self.wire.loop.name, message)
        if not self._server.publish(message, reply) and reply:
            self._server.deliver(reply, reply, b"", _NO_RESPONDERS, b"")

    def _handle(self, fields: list[bytes], line: bytes) -> None:
        match fields[0]:
            case b"PING":
                self.write(b"PONG\r\n")
            case b"SUB":
                assert len(fields) == 3, "no rule under test has a queue group"
                self._server.subscribe(ClientSubscription(self, fields[1], fields[2]))
            case b"UNSUB":
                self._server.happened("UNSUB")
                assert len(fields) == 2, "no rule under test limits deliveries"
                if subscription := self.subscriptions.get(fields[1]):
                    self._server.unsubscribe(subscription)
            case b"CONNECT":
                pass
            case _:
                raise AssertionError(f"the bridge wrote {line[:100]!r}")


class SimulatedServer:
    """One server, and its store."""

    def __init__(self, world: World, network: Network, place: Reachable, version: str, name: str) -> None:
        self.world, self.place, self.version, self.name = world, place, version, name
        self.dialect = server_dialect(version)
        self.streams: dict[str, KeptStream] = {}
        self.is_up = False
        self.dirty: list[ConnectedClient] = []
        self.flow_control: dict[bytes, PushConsumer] = {}
        self.observe: Callable[[str, Message], None] = lambda *_: None  # what each process publishes
        self.listeners: list[tuple[bytes, Callable[[Message], None]]] = []
        self.happened: Callable[[str], None] = lambda _: None  # an event that faults can wait for
        self.loses_acks = 0.0  # the part of PubAcks that do not come
        self.slow = 0.0  # seconds, at most, by which it stores or answers late
        self.late_reports = 0.1  # the part of advisories that come up to half a second late
        self.is_full = False  # whether its disk takes nothing
        self._network = network
        self._clients: dict[int, ConnectedClient] = {}
        self._subscriptions: list[ClientSubscription] = []
        self._found: dict[bytes, list[ClientSubscription]] = {}  # by subject, until a subscription comes or goes
        self._takers: dict[bytes, list[str]] = {}  # by subject, until a stream comes or goes
        self._numbers = self._starts = 0
        self._slow_consumers: set[int] = set()  # numbers of ended connections
        self._api = SimulatedApi(self)
        self._inbound: dict[str, deque[tuple[Message, Answered | None]]] = {}

    def info(self, number: int) -> dict[str, Any]:
        who = {"server_id": f"{self.name}{self._starts:04d}".upper(), "server_name": self.name, "version": self.version}
        where = {"proto": 1, "host": self.place.host, "port": self.place.port}
        return {**who, **where, "headers": True, "max_payload": _MAX_PAYLOAD, "jetstream": True, "client_id": number}

    def start(self) -> None:
        self.is_up = True
        self._starts += 1
        for stream in self.streams.values():
            stream.reopen(self.world.now_ns)
            for consumer in list(stream.consumers.values()):
                consumer.begin()
        self._network.listeners[self.place] = self._accept

    def end(self, *, lost_since: float | None = None) -> None:
        """End at once. With a time, as in a power cut: everything stored since that second is lost."""
        self.is_up = False
        del self._network.listeners[self.place]
        for client in list(self._clients.values()):
            client.is_closed = True
            client.wire.to_server.drop()
            if lost_since is None:
                client.wire.to_client.send(None)
            # Without power nothing says that the connection is over: the restarted server resets it.
        self._clients.clear()
        self._subscriptions.clear()
        self._found.clear()
        self._inbound.clear()
        self.flow_control.clear()
        since_ns = None if lost_since is None else self.world.now_ns - int((self.world.now - lost_since) * 1e9)
        for stream in self.streams.values():
            if since_ns is not None:
                stream.lose_since(since_ns)
            self._restore_consumers(stream, since_ns)

    def _restore_consumers(self, stream: KeptStream, since_ns: int | None) -> None:
        for name, consumer in list(stream.consumers.items()):
            if consumer.is_durable:
                consumer.restore(self._kept_until(since_ns))
            else:
                del stream.consumers[name]

    def _kept_until(self, since_ns: int | None) -> int | None:
        """Draw until when a consumer's state is kept if its stream has lost what came since a time: often longer."""
        longer = self.world.chance.choice([0.0, self.world.chance.random(), 1.0])
        return None if since_ns is None else since_ns + int((self.world.now_ns - since_ns) * longer)

    def lose_tail(self, stream: KeptStream, since: float) -> None:
        """Let a stream lose what it has stored since a time (seconds), while all connections stay."""
        since_ns = self.world.now_ns - int((self.world.now - since) * 1e9)
        self._inbound.pop(stream.name, None)
        stream.lose_since(since_ns)
        stream.reopen(self.world.now_ns)
        self._restore_consumers(stream, since_ns)

    def lead(self, stream: KeptStream) -> None:
        """Let a stream have a leader again."""
        stream.has_leader = True
        for consumer in stream.consumers.values():
            consumer.begin()
        if self.is_up:
            self.flush()

    def _accept(self, wire: Wire) -> ConnectedClient:
        self._numbers += 1
        client = self._clients[self._numbers] = ConnectedClient(self, wire, self._numbers)
        self.happened("connection")
        self.world.after(0, self.flush)
        return client

    def forget(self, client: ConnectedClient) -> None:
        self._clients.pop(client.number, None)
        for subscription in list(client.subscriptions.values()):
            self.unsubscribe(subscription)

    def flush(self) -> None:
        while self.dirty:
            dirty, self.dirty = self.dirty, []
            for client in dirty:
                client.flush()

    def subscribe(self, subscription: ClientSubscription) -> None:
        subscription.client.subscriptions[subscription.sid] = subscription
        self._subscriptions.append(subscription)
        self._interest_changed(subscription)

    def unsubscribe(self, subscription: ClientSubscription) -> None:
        subscription.client.subscriptions.pop(subscription.sid, None)
        self._subscriptions = [each for each in self._subscriptions if each is not subscription]
        self._interest_changed(subscription)

    def _interest_changed(self, subscription: ClientSubscription) -> None:
        self._found.clear()
        for stream in self.streams.values():
            for consumer in stream.consumers.values():
                if consumer.inbox and subscription.takes(consumer.inbox):
                    consumer.interest_may_have_changed()

    def _subscribers(self, subject: bytes) -> list[ClientSubscription]:
        found = self._found.get(subject)
        if found is None:
            found = self._found[subject] = [each for each in self._subscriptions if each.takes(subject)]
        return found

    def has_interest(self, subject: bytes) -> bool:
        return bool(self._subscribers(subject))

    def deliver(self, to: bytes, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> bool:
        """Send a message to the subscribers of a subject. Return whether any exist."""
        subscribers = self._subscribers(to)
        for each in subscribers:
            head = b"%b %b %b" % (subject, each.sid, reply) if reply else b"%b %b" % (subject, each.sid)
            if block:
                size = len(block)
                each.client.write(b"HMSG %b %d %d\r\n%b%b\r\n" % (head, size, size + len(payload), block, payload))
            else:
                each.client.write(b"MSG %b %d\r\n%b\r\n" % (head, len(payload), payload))
        return bool(subscribers)

    def publish(self, message: Message, reply: bytes = b"", answered: Answered | None = None) -> bool:
        """Handle a publication. Return whether anything takes it. `answered` gets the stream's answer instead."""
        subject = message.subject
        if subject.startswith(b"$JS."):
            return self._to_jetstream(message, reply)
        if subject.startswith(b"$SYS."):
            return self._say_why_it_ended(message, reply)
        for pattern, listener in self.listeners:
            if matches(subject, pattern):
                listener(message)
        taken = self.deliver(subject, subject, reply, message.header_block, message.payload)
        takers = self._takers.get(subject)
        if takers is None:
            takers = [name for name, stream in self.streams.items() if stream.model.takes(subject)]
            self._takers[subject] = takers
        for name in takers:
            if not self.streams[name].has_leader and (drawn := self.world.chance.random()) < 0.7:
                taken |= drawn < 0.4  # lost on the way to its leader; else it has no responders
                continue
            taken = True
            self._queue(name, message, partial(self._answer, reply) if reply and answered is None else answered)
        return taken

    def _say_why_it_ended(self, message: Message, reply: bytes) -> bool:
        """Answer why a connection was ended, if it was a slow consumer's. Return whether anything answers."""
        is_known = message.subject.endswith(b".CONNZ") and json.loads(message.payload)["cid"] in self._slow_consumers
        if is_known:
            why = {"connections": [{"reason": "Slow Consumer (Pending Bytes)"}]}
            answer = {"server": {"id": self.info(0)["server_id"]}, "data": why}
            self.deliver(reply, reply, b"", b"", json.dumps(answer).encode())
        return is_known

    def end_slow_consumer(self, chosen: int) -> None:
        """End one of the connections: what is in flight is lost."""
        if clients := list(self._clients.values()):
            client = clients[chosen % len(clients)]
            self._slow_consumers.add(client.number)
            client.wire.reset()

    def advise(self, subject: bytes, advisory: dict[str, Any]) -> None:
        """Send an advisory, a moment later."""
        if self._subscribers(subject):
            self._send_after(
                self.world.moment(0.0005, rarely=self.late_reports, longest=0.5), subject, json.dumps(advisory).encode()
            )

    def stream_created(self, stream: str) -> None:
        self._takers.clear()
        advisory = {"type": "io.nats.jetstream.advisory.v1.stream_action", "stream": stream, "action": "created"}
        self.advise(f"$JS.EVENT.ADVISORY.STREAM.CREATED.{stream}".encode(), advisory)

    def _send_after(self, seconds: float, subject: bytes, payload: bytes) -> None:
        def send() -> None:
            if self.is_up:
                self.deliver(subject, subject, b"", b"", payload)
                self.flush()

        self.world.after(seconds, send)

    def _late(self) -> float:
        """Draw by how many seconds something is late."""
        return self.world.draw(0, self.slow) if self.slow and self.world.chance.random() < 0.3 else 0.0

    def _reply(self, reply: bytes, answer: bytes) -> None:
        if late := self._late():
            self._send_after(late, reply, answer)
        else:
            self.deliver(reply, reply, b"", b"", answer)

    def _to_jetstream(self, message: Message, reply: bytes) -> bool:
        subject = message.subject
        if subject.startswith(PREFIX):
            name, names = self._api.parsed(subject)
            self.happened(request := " ".join((name, *names[:1])))
            asked = partial(self._ask, request, message, reply)
            self.world.after(self.world.moment(_API, rarely=0.005, longest=0.5), asked)
        elif subject.startswith(b"$JS.ACK."):
            self._acknowledge(message, reply)
        elif subject.startswith(b"$JS.FC."):
            if consumer := self.flow_control.pop(subject, None):
                consumer.controlled(subject)
        else:
            return False
        return True

    def _ask(self, request: str, message: Message, reply: bytes) -> None:
        if not self.is_up:
            return
        name = message.subject.decode().partition(".")[2]
        if any(not each.has_leader and f".{each.name}" in name for each in self.streams.values()):
            return  # no leader answers
        answer = self._api.answer(message.subject, message.payload)
        if answer is None:
            self.deliver(reply, reply, b"", _NO_RESPONDERS, b"")
        elif reply:
            self._reply(reply, answer)
        self.flush()
        self.happened(f"{request} answered")

    def request(self, request: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the API without a connection. Return the answer."""
        answer = self._api.answer(PREFIX + request.encode(), b"" if body is None else json.dumps(body).encode())
        found: dict[str, Any] = json.loads(answer or b"")
        return found

    def _acknowledge(self, message: Message, reply: bytes) -> None:
        tokens = message.subject.split(b".")
        stream = self.streams.get(tokens[2].decode())
        if not stream or not stream.has_leader or (consumer := stream.consumers.get(tokens[3].decode())) is None:
            return
        self.happened(f"ack {consumer.stream.name}")
        if message.payload in (b"", b"+ACK"):
            consumer.acknowledged(int(tokens[5]), int(tokens[6]))
        if reply:
            self.deliver(reply, reply, b"", b"", b"")

    def add_consumer(self, stream: KeptStream, config: dict[str, Any]) -> PushConsumer:
        consumer = stream.consumers[config["name"]] = PushConsumer(self, stream, config)
        consumer.begin()
        return consumer

    def delete_consumer(self, stream: KeptStream, name: str) -> None:
        stream.consumers.pop(name).is_gone = True
        advisory = {"type": "io.nats.jetstream.advisory.v1.consumer_action", "stream": stream.name, "consumer": name}
        self.advise(f"$JS.EVENT.ADVISORY.CONSUMER.DELETED.{stream.name}.{name}".encode(), advisory)

    def _queue(self, name: str, message: Message, answered: Answered | None) -> None:
        """Queue a message for a stream, which stores messages one after the other."""
        waiting = self._inbound.setdefault(name, deque())
        waiting.append((message, answered))
        if len(waiting) == 1:
            moment = self.world.moment(_STORES, rarely=0.003, longest=0.2) + self._late()
            self.world.after(moment, partial(self._store, name, waiting))

    def _store(self, name: str, waiting: deque[tuple[Message, Answered | None]]) -> None:
        if not self.is_up or self._inbound.get(name) is not waiting:
            return
        # What has come together is stored together, but now and then there is a pause between two.
        while waiting:
            message, answered = waiting.popleft()
            if stream := self.streams.get(name):
                answer = self._ingest(stream, message)
                if answered is not None and not (self.is_full and self.dialect.version >= (2, 15)):
                    answered(answer)
            if waiting and self.world.chance.random() < 0.05:
                self.world.after(self.world.moment(_STORES), partial(self._store, name, waiting))
                break
        if not waiting:
            del self._inbound[name]
        if stream := self.streams.get(name):
            for consumer in stream.consumers.values():
                consumer.signal()
        self.flush()
        self.happened(f"stored {name}")

    def _ingest(self, stream: KeptStream, message: Message) -> dict[str, Any]:
        message = replace(message, header_block=ingested(message.header_block, self.dialect))
        try:
            self._check(message)
            found = stream.take(message, self.world.stamp())
        except Refused as refused:
            error = {"code": 400, "err_code": refused.err_code, "description": refused.description}
            return {"error": error, "stream": stream.name, "seq": 0}
        if isinstance(found, int):
            return {"stream": stream.name, "seq": found, "duplicate": True}
        return {"stream": stream.name, "seq": found.sequence}

    def _check(self, message: Message) -> None:
        if self.is_full:
            raise Refused(10077, "no space left on device")
        if self.dialect.source_record_is_refused_from_clients and header(message.header_block, _SOURCE):
            raise Refused(10227, "message stream source header is not allowed")

    def _answer(self, reply: bytes, answer: dict[str, Any]) -> None:
        if not self.loses_acks or self.world.chance.random() >= self.loses_acks:
            self._reply(reply, json.dumps(answer).encode())
