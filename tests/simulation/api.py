"""The JetStream API of a simulated server: what the bridge asks, answered as servers do."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from nats_transforms.errors import StreamConfigError
from nats_transforms.stream_config import validate
from nats_transforms.timestamp import rfc3339_nano
from tests.simulation.consumers import PushConsumer
from tests.simulation.streams import KeptStream, selector

if TYPE_CHECKING:
    from tests.simulation.server import SimulatedServer

PREFIX = b"$JS.API."
_REQUESTS = (
    *(f"STREAM.{what}" for what in ("INFO", "LIST", "CREATE", "PURGE")),
    *("STREAM.MSG.GET", "STREAM.MSG.DELETE", "CONSUMER.INFO", "CONSUMER.DELETE"),
    *("CONSUMER.DURABLE.CREATE", "CONSUMER.CREATE"),
)
_AUDITED = ("STREAM.CREATE", "STREAM.PURGE", "STREAM.MSG.DELETE")
_PAGE = 256
_KEPT_BY_UPDATES = ("deliver_policy", "opt_start_seq", "opt_start_time", "ack_policy", "replay_policy")

Body: TypeAlias = dict[str, Any]


class ApiRefusal(Exception):  # noqa: N818 - an answer, not an error
    """The API refuses: holds the server's error."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.answer = {"error": {"code": code, "err_code": err_code, "description": description}}


class SimulatedApi:
    """Answers requests about the streams of a server."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        handlers: dict[str, Callable[[list[str], Body], Body]]
        handlers = {name: getattr(self, "_" + name.lower().replace(".", "_")) for name in _REQUESTS}
        self._requests = handlers

    def parsed(self, subject: bytes) -> tuple[str, list[str]]:
        """Return the name of a request, empty for an unknown one, and the names in it: first the stream's."""
        request = subject.removeprefix(PREFIX).decode()
        name = next((each for each in self._requests if request == each or request.startswith(each + ".")), "")
        return name, request[len(name) + 1 :].split(".") if len(request) > len(name) else []

    def answer(self, subject: bytes, payload: bytes) -> bytes | None:
        """Carry out a request. Return the answer, or None if nothing answers."""
        name, names = self.parsed(subject)
        if not name:
            return None
        try:
            found = self._requests[name](names, json.loads(payload) if payload else {})
        except ApiRefusal as refused:
            found = refused.answer
        answer = json.dumps(found).encode()
        if name in _AUDITED:
            self._audit(subject, payload, answer)
        return answer

    def _audit(self, subject: bytes, payload: bytes, answer: bytes) -> None:
        said = {"subject": subject.decode(), "request": payload.decode(), "response": answer.decode()}
        said |= {"timestamp": rfc3339_nano(self._server.world.stamp()).decode()}
        self._server.advise(b"$JS.EVENT.ADVISORY.API", {"type": "io.nats.jetstream.advisory.v1.api_audit", **said})

    def _stream(self, name: str) -> KeptStream:
        stream = self._server.streams.get(name)
        if stream is None:
            raise ApiRefusal(404, 10059, "stream not found")
        return stream

    def _stream_info(self, names: list[str], body: Body) -> Body:
        return self._stream(names[0]).info(self._server.world.now_ns, body)

    def _stream_list(self, _: list[str], __: Body) -> Body:
        found = [stream.info(self._server.world.now_ns, {}) for _, stream in sorted(self._server.streams.items())]
        return {"total": len(found), "offset": 0, "limit": _PAGE, "streams": found}

    def _checked(self, body: Body) -> Body:
        others = {name: stream.model.config for name, stream in self._server.streams.items() if name != body["name"]}
        try:
            return dict(validate(body, self._server.dialect, previous=None, sources=others))
        except StreamConfigError as error:
            raise ApiRefusal(error.http_code, error.err_code, error.description) from None

    def _stream_create(self, names: list[str], body: Body) -> Body:
        if int(body.get("num_replicas") or 1) > 1:
            raise ApiRefusal(500, 10074, "replicas > 1 not supported in non-clustered mode")
        config = self._checked({"name": names[0], **body})
        stream = self._server.streams.get(names[0])
        if stream is None:
            stream = self._server.streams[names[0]] = KeptStream(config, self._server.world.stamp())
            self._server.stream_created(names[0])
        return stream.info(self._server.world.now_ns, {})

    def _stream_purge(self, names: list[str], body: Body) -> Body:
        return {"success": True, "purged": self._stream(names[0]).purge(body)}

    def _stream_msg_delete(self, names: list[str], body: Body) -> Body:
        if not self._stream(names[0]).delete(int(body["seq"])):
            raise ApiRefusal(400, 10057, f"sequence {body['seq']} not found")
        return {"success": True}

    def _stream_msg_get(self, names: list[str], body: Body) -> Body:
        stream = self._stream(names[0])
        messages, sequence = stream.model.messages, int(body.get("seq") or 0)
        if wanted := body.get("last_by_subj"):
            selects = selector(wanted)
            found = next((each for each in reversed(messages.values()) if selects(each.message.subject)), None)
        elif wanted := body.get("next_by_subj"):
            selects = selector(wanted)
            places = range(max(sequence, stream.first), stream.model.last_sequence + 1)
            later = (messages[at] for at in places if at in messages)
            found = next((each for each in later if selects(each.message.subject)), None)
        else:
            found = messages.get(sequence)
        if found is None:
            raise ApiRefusal(404, 10037, "no message found")
        time = rfc3339_nano(found.time_ns).decode()
        message: Body = {"subject": found.message.subject.decode(), "seq": found.sequence, "time": time}
        if found.message.header_block:
            message["hdrs"] = base64.b64encode(found.message.header_block).decode()
        if found.message.payload:
            message["data"] = base64.b64encode(found.message.payload).decode()
        return {"message": message}

    def _consumer(self, names: list[str]) -> PushConsumer:
        consumer = self._stream(names[0]).consumers.get(names[1])
        if consumer is None:
            raise ApiRefusal(404, 10014, "consumer not found")
        return consumer

    def _consumer_info(self, names: list[str], _: Body) -> Body:
        return self._consumer(names).info(self._server.world.now_ns)

    def _consumer_delete(self, names: list[str], _: Body) -> Body:
        consumer = self._consumer(names)
        self._server.delete_consumer(consumer.stream, consumer.name)
        return {"success": True}

    def _consumer_create(self, names: list[str], body: Body) -> Body:
        stream, wanted = self._stream(names[0]), dict(body["config"])
        name = wanted.get("durable_name") or wanted.get("name") or names[1]
        config = _with_defaults(wanted, name)
        now_ns, existing = self._server.world.now_ns, stream.consumers.get(name)
        if existing is None:
            return self._server.add_consumer(stream, config).info(now_ns)
        if body.get("action") == "create" and existing.config != config:
            raise ApiRefusal(400, 10148, "consumer already exists")
        if existing.config == config:
            return existing.info(now_ns)
        moved = existing.config.get("deliver_subject") != config.get("deliver_subject")
        if moved and existing.inbox and self._server.has_interest(existing.inbox):
            raise ApiRefusal(400, 10013, "consumer name already in use")
        for member in _KEPT_BY_UPDATES:
            if existing.config.get(member) != config.get(member):
                raise ApiRefusal(500, 10012, f"{member.replace('_', ' ')} can not be updated")
        existing.configure(config)
        existing.is_bound = False
        existing.begin()
        return existing.info(now_ns)

    _consumer_durable_create = _consumer_create


def _with_defaults(wanted: Body, name: str) -> Body:
    config = {"deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant", **wanted, "name": name}
    if config["ack_policy"] != "none":
        config = {"ack_wait": 30 * 10**9, "max_ack_pending": 1000, "max_deliver": -1, **config}
    return {"max_deliver": -1, "num_replicas": 0, **config}
