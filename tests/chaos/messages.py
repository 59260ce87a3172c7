"""Makes the workload's messages: each from its number and the seed alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from nats_conformance.catalogue.case import Message

NAME: Final = b"Chaos-Number"
"""The header that holds a message's number, where it has headers."""

LARGEST: Final = 1_040_000
"""Bytes of the largest payload: what fits the servers' default `max_payload` with the headers that copies get."""

_REGIONS: Final = (b"eu", b"us", b"asia")


def numbered(prefix: bytes, number: int, chance: random.Random) -> Message:
    """A message of a stream: any size, and headers of many shapes."""
    subject = b"%b.%b.%d" % (prefix, chance.choice(_REGIONS), chance.randrange(40))
    return Message(subject, _block(prefix, number, chance), _payload(prefix, number, chance))


def one_of_subjects(message: Message, subjects: int, subject: bytes = b"") -> Message:
    """Return a copy of a message whose subject is one of a few, or `subject` if it is given."""
    prefix, _, token = message.subject.split(b".")
    return replace(message, subject=subject or b"%b.eu.%d" % (prefix, int(token) % subjects))


def identified(message: Message, prefix: bytes, number: int) -> Message:
    """Return a message with a `Nats-Msg-Id`: its own, or else one made of the prefix and the number."""
    if b"Nats-Msg-Id" in message.header_block:
        return message
    added = b"Nats-Msg-Id: %b-%d\r\n\r\n" % (prefix, number)
    return replace(message, header_block=(message.header_block or b"NATS/1.0\r\n\r\n")[:-2] + added)


def event(number: int, chance: random.Random) -> Message:
    """A message for an ingress rule; the subject names the rule."""
    subject = b"events.k%d.n%d" % (chance.randrange(5), number)
    return Message(subject, _block(b"events", number, chance), _payload(b"events", number, chance))


def scratch(number: int, chance: random.Random) -> Message:
    """A message of a stream that forgets; the subject has its number."""
    subject = b"scratch.k%d.n%d" % (chance.randrange(5), number)
    return Message(subject, _block(b"scratch", number, chance), _payload(b"scratch", number, chance))


def job(number: int, chance: random.Random) -> Message:
    """A message that a worker will give up."""
    return Message(b"jobs.%d" % (number % 7), _block(b"jobs", number, chance), _payload(b"jobs", number, chance))


def setting(number: int, chance: random.Random) -> Message:
    """A change of a key: a put, a delete, or a purge, which rolls up."""
    subject = b"$KV.SETTINGS.k%d" % chance.randrange(60)
    what = chance.random()
    if what < 0.05:
        return Message(subject, b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n")
    if what < 0.08:
        return Message(subject, b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n")
    return Message(subject, b"", b"setting %d" % number)


def addition(prefix: bytes, number: int, chance: random.Random) -> Message:
    """What is added to one of a few counters (2.12): a whole number below or above 0, and no payload."""
    subject = b"%b.page.%d" % (prefix, chance.randrange(20))
    return Message(subject, _block(prefix, number, chance, b"Nats-Incr: %d" % chance.randrange(-9, 100)))


def plan(number: int, chance: random.Random) -> Message:
    """A schedule (2.12) that is due or far away, or a message like any other.

    A schedule has the rollup that its stream would add, so that what is stored is what was sent.
    """
    what = chance.random()
    if what < 0.5:
        return Message(b"plans.notes.%d" % chance.randrange(40), _block(b"plans", number, chance), b"note %d" % number)
    due = b"2020-01-01T00:00:00Z" if what < 0.75 else b"2099-01-01T00:00:00Z"
    lines = [
        b"Nats-Schedule: @at " + due,
        b"Nats-Schedule-Target: plans.fired.%d" % chance.randrange(7),
        b"Nats-Rollup: sub",
    ]
    return Message(b"plans.schedules.%d" % number, _block(b"plans", number, chance, *lines), b"plan %d" % number)


def lease(number: int, chance: random.Random) -> Message:
    """A message that expires with its stream's age, so that a delete marker follows (2.11), or one that stays."""
    lines = [b"Nats-TTL: never"] if chance.random() < 0.02 else []
    subject = b"leases.%d" % chance.randrange(20_000)
    return Message(subject, _block(b"leases", number, chance, *lines), b"lease %d" % number)


def passing(number: int, chance: random.Random) -> Message:
    """A message with a TTL of its own (2.11), alone on its subject so that a delete marker follows, or among others."""
    alone = chance.random() < 0.5
    subject = b"passes.alone.%d" % chance.randrange(2000) if alone else b"passes.shared.%d" % chance.randrange(40)
    ttl = chance.choice([b"1s", b"2s"]) if alone else chance.choice([b"", b"1s", b"1s", b"2s", b"never"])
    lines = [b"Nats-TTL: " + ttl] if ttl else []
    return Message(subject, _block(b"passes", number, chance, *lines), b"pass %d" % number)


def _payload(prefix: bytes, number: int, chance: random.Random) -> bytes:
    what = chance.random()
    if what < 0.1:
        return b""
    beginning = b"%b %d " % (prefix, number)
    if what < 0.999:
        return beginning + b"x" * chance.randrange(400)
    return beginning + chance.randbytes(1024) * (chance.randrange(LARGEST - 2048) // 1024)


def _block(prefix: bytes, number: int, chance: random.Random, *more: bytes) -> bytes:
    what = chance.random()
    if what < 0.3 and not more:
        return b""
    lines = [b"NATS/1.0", b"%b: %d" % (NAME, number), *more]
    if what > 0.5:
        lines += [b"x-lower: a", b"X-Lower:b", b"Empty:", b"Spaced:   wide \xc3\xa9 "]
    if what > 0.7:
        lines += [b"Twice: 1", b"twice: 2", b"Twice: 1"]
    if what > 0.9:
        lines.append(b"Nats-Msg-Id: %b-%d" % (prefix, number))
    chance.shuffle(tail := lines[1:])
    return b"\r\n".join([lines[0], *tail, b"", b""])
