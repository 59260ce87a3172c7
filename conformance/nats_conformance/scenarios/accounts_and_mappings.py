"""Scenarios with a server configuration: account mappings, permissions, exports and imports."""

from pathlib import Path

from nats_conformance.raw_client import Credentials
from nats_conformance.scenarios.account import REPUBLISH, Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.texts import header_of, headers_named, payloads_of, record_of, subjects_of
from nats_conformance.scenarios.waiting import arrived


def _accounts(name: str) -> str:
    return (Path(__file__).parent / "accounts" / f"{name}.conf").read_text("utf-8")


def _user(name: str) -> Credentials:
    return Credentials(user=name, password=name)


async def _delivered_on(account: Account, subject: str) -> list[str]:
    """Return the subjects on which a subscriber of everything receives one message."""
    received = await account.subscribe(">")
    account.send(subject, "x")
    await account.client.flush()
    return subjects_of(received)


@scenario
async def mapping_before_a_stream(laboratory: Laboratory) -> Facts:
    """Publish on a subject that is mapped to a stream's: after the mapping, the original subject is lost."""
    account, received = await laboratory.republishing('mappings: {"from.*": "in.$1"}')
    answer = await account.publish("from.a", "x")
    await account.client.flush()
    return {
        "answered_by": answer["stream"],
        "stored_on": subjects_of(await account.stored("S")),
        "republished_on": subjects_of(received),
        "nats_subject": header_of(received.messages[0], "Nats-Subject"),
    }


@scenario
async def mapping_of_the_republish_destination(laboratory: Laboratory) -> Facts:
    """Map the destination: this changes messages of clients, but not republished ones."""
    account = await laboratory.account('mappings: {"out.*": "moved.$1"}')
    await account.create("S", subjects=["in.*"], republish=REPUBLISH)
    moved, unmoved = await account.subscribe("moved.*"), await account.subscribe("out.*")
    await account.publish("in.a", "republished")
    account.send("out.a", "by a client")
    await account.client.flush()
    return {"on_the_destination": payloads_of(unmoved), "on_the_mapped_subject": payloads_of(moved)}


@scenario
async def partition_in_a_mapping(laboratory: Laboratory) -> Facts:
    """Use the same function in a mapping and in a stream: partition of a wildcard gives the same number."""
    account = await laboratory.account('mappings: {"m.*": "mapped.{{partition(10,1)}}"}')
    await account.create("S", subjects=["in.*"], republish={"src": "in.*", "dest": "out.{{partition(10,1)}}"})
    received = await account.subscribe("out.>")
    mapped = await _delivered_on(account, "m.orders")
    await account.publish("in.orders", "x")
    await account.client.flush()
    return {"mapped": mapped, "republished": subjects_of(received)}


@scenario
async def partition_of_a_literal_mapping(laboratory: Laboratory) -> Facts:
    """Use `partition(n)` without indexes on sources without wildcards: two sources with different hashes."""
    facts: Facts = {}
    for subject in ("first", "second"):
        config = f'mappings: {{"{subject}": "mapped.{{{{partition(1000)}}}}"}}'
        if not await laboratory.starts(config):
            facts[subject] = "the server does not start"
            continue
        account = await laboratory.account(config)
        facts[subject] = await _delivered_on(account, subject)
    return facts


@scenario
async def functions_that_mappings_know(laboratory: Laboratory) -> Facts:
    """Try functions in the configuration of a mapping: with an unsupported one, the server does not start."""
    functions = ("wildcard(1)", "split(1,-)", "left(1,2)", "right(1,2)", "random(3)", "nonsense(1)")
    return {each: await laboratory.starts(f'mappings: {{"m.*": "x.{{{{{each}}}}}"}}') for each in functions}


@scenario
async def unused_wildcard_in_a_mapping(laboratory: Laboratory) -> Facts:
    """A mapping that leaves out a wildcard of its source, and one with an empty source."""
    return {
        "unused_wildcard": await laboratory.starts('mappings: {"m.*.*": "x.$1"}'),
        "empty_source": await laboratory.starts('mappings: {"": "x"}'),
    }


@scenario
async def permissions_of_the_publisher(laboratory: Laboratory) -> Facts:
    """A user who may not publish on the destination publishes into the stream: the copy is sent all the same."""
    server = await laboratory.server(_accounts("permissions"))
    owner, writer = await laboratory.connect(server, _user("owner")), await laboratory.connect(server, _user("writer"))
    await owner.create("S", subjects=["in.*"], republish=REPUBLISH)
    received = await owner.subscribe("out.>")
    writer.send("out.a", "not allowed")
    await writer.publish("in.a", "allowed")
    await owner.client.flush()
    return {"received": payloads_of(received)}


@scenario
async def republish_through_an_export(laboratory: Laboratory) -> Facts:
    """Another account imports the destination, and publishes into the stream through a service."""
    server = await laboratory.server(_accounts("export"))
    owner, importer = await laboratory.connect(server, _user("a")), await laboratory.connect(server, _user("b"))
    await owner.create("S", subjects=["in.*"], republish=REPUBLISH)
    received = await importer.subscribe("imported.>")
    answer = await importer.publish("request", "x")
    (copy,) = await arrived(received, 1)
    (stored,) = await owner.stored("S")
    return {
        "answered_by": answer["stream"],
        "received_on": subjects_of(received),
        "nats_subject": header_of(copy.message, "Nats-Subject"),
        "names_the_requester": "Nats-Request-Info" in headers_named(copy.message),
        "stores_the_requester": "Nats-Request-Info" in headers_named(stored.message),
    }


@scenario
async def source_of_another_account(laboratory: Laboratory) -> Facts:
    """An external source: the record names the stream together with a hash of the API prefix."""
    server = await laboratory.server(_accounts("external"))
    source, target = await laboratory.connect(server, _user("a")), await laboratory.connect(server, _user("b"))
    await source.create("O", subjects=["in.*"])
    await source.publish_all("in.a", ["1"])
    external = {"api": "JSA.API", "deliver": "deliver.b"}
    await target.create("T", sources=[{"name": "O", "external": external}])
    (first,) = await target.holding("T", 1)
    source = await laboratory.restart(server, credentials=_user("a"))
    target = await laboratory.connect(server, _user("b"))
    await source.publish_all("in.a", ["2"])
    return {
        "record": record_of(first.message),
        "stored_behind_a_restart": payloads_of(await target.holding("T", 2)),
    }
