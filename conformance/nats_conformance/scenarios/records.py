"""Scenarios for `Nats-Stream-Source`: the source that a sourced message names, and who may write it."""

from nats_conformance.scenarios.account import Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.texts import header_of, messages_of, payloads_of

_FIELDS_WITH_IDENTITY = 6


async def _identities(account: Account, stream: str, count: int) -> list[str | None]:
    """Return the sources' identities in the messages of a stream; None for messages without one."""
    stored = messages_of(await account.holding(stream, count))
    records = [header_of(each, "Nats-Stream-Source") or "" for each in stored]
    fields = [record.split(" ") for record in records]
    return [each[-1] if len(each) == _FIELDS_WITH_IDENTITY else None for each in fields]


@scenario
async def identity_of_a_source_stream(laboratory: Laboratory) -> Facts:
    """The identity in the record: the same for two targets and after a restart, another for a recreated stream."""
    server, account = await laboratory.with_source("1")
    await account.create("T", sources=[{"name": "O"}])
    (first,) = await _identities(account, "T", 1)
    account = await laboratory.restart(server)
    await account.publish_all("in.a", ["2"])
    restarted = (await _identities(account, "T", 2))[1]
    await account.create("U", sources=[{"name": "O"}])
    second_target = (await _identities(account, "U", 2))[0]
    await account.request("STREAM.DELETE.O")
    await account.create("O", subjects=["in.*"])
    await account.publish_all("in.a", ["3"])
    await account.create("V", sources=[{"name": "O"}])
    (recreated,) = await _identities(account, "V", 1)
    return {
        "is_recorded": first is not None,
        "same_after_restart": first == restarted,
        "same_for_another_target": first == second_target,
        "same_when_recreated": first == recreated,
    }


@scenario
async def bridged_messages_are_taken_for_sourced_ones(laboratory: Laboratory) -> Facts:
    """Messages with a hand-made record, then the source itself is added: it resumes after them, or starts at 1."""
    facts: Facts = {}
    records = {"four_fields": "O {} in.* t.$1", "two_fields": "O {}", "other_texts": "O {} in.> t.>"}
    for name, record in records.items():
        facts[name] = await _handed_over(laboratory, record)
    return facts


async def _handed_over(laboratory: Laboratory, record: str) -> list[str] | int:
    _, account = await laboratory.with_source("1", "2", "3")
    await account.create("T", subjects=["t.*"])
    for number in (1, 2):
        answer = await account.publish("t.a", f"bridged {number}", [f"Nats-Stream-Source: {record.format(number)}"])
        if "error" in answer:
            code: int = answer["error"]["err_code"]
            return code
    source = {"name": "O", "subject_transforms": [{"src": "in.*", "dest": "t.$1"}]}
    await account.update("T", sources=[source])
    return payloads_of(await account.copied("T", "end"))


@scenario
async def start_sequence_hands_over(laboratory: Laboratory) -> Facts:
    """Store messages without a record, then add a source with `opt_start_seq`: exact on every version."""
    server, account = await laboratory.with_source("1", "2", "3")
    await account.create("T", subjects=["t.*"])
    await account.publish_all("t.a", ["bridged 1", "bridged 2"])
    await account.update("T", sources=[{"name": "O", "opt_start_seq": 3}])
    before = payloads_of(await account.copied("T", "end"))
    account = await laboratory.restart(server)
    stored = payloads_of(await account.copied("T", "behind a restart"))
    return {"stored": stored, "unchanged_by_restart": stored[: len(before)] == before}
