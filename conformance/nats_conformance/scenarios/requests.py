"""Scenarios for requests: the server's INFO, and unknown members."""

from nats_conformance.scenarios.account import Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario


@scenario
async def api_level(laboratory: Laboratory) -> Facts:
    """Return `api.level` of `$JS.API.INFO`."""
    account = await laboratory.account()
    return {"level": (await account.request("INFO"))["api"].get("level")}


async def _unknown_member(account: Account) -> int | None:
    return await account.refusal("STREAM.CREATE.S", {"name": "S", "subjects": ["in.*"], "unheard_of": True})


@scenario
async def unknown_member_by_default(laboratory: Laboratory) -> Facts:
    """Send a member that no version has, in a stream's and in a consumer's configuration."""
    account = await laboratory.account()
    stream = await _unknown_member(account)
    if stream is not None:
        await account.create("S", subjects=["in.*"])
    body = {"stream_name": "S", "config": {"ack_policy": "none", "deliver_subject": "d", "unheard_of": True}}
    return {"stream_err_code": stream, "consumer_err_code": await account.refusal("CONSUMER.CREATE.S", body)}


@scenario
async def strict_mode_of_the_server(laboratory: Laboratory) -> Facts:
    """Set `jetstream { strict: … }` in the server's configuration, which decides about unknown members."""
    facts: Facts = {}
    for name, text in (("strict", "true"), ("lenient", "false")):
        config = f"jetstream {{ strict: {text} }}"
        if not await laboratory.starts(config):
            facts[name] = "the server does not start"
            continue
        account = await laboratory.account(config)
        facts[name] = await _unknown_member(account)
    return facts


@scenario
async def several_filters_of_a_consumer(laboratory: Laboratory) -> Facts:
    """Create a consumer with `filter_subjects`: they are used, or silently ignored, so everything is delivered."""
    account = await laboratory.account()
    await account.create("S", subjects=["in.*"])
    for subject in ("in.a", "in.b", "in.c"):
        await account.publish(subject, "x")
    answer = await account.consumer("S", ack_policy="none", filter_subjects=["in.a", "in.b"])
    return {"num_pending": answer["num_pending"], "filters": answer["config"].get("filter_subjects")}


@scenario
async def configuration_as_it_comes_back(laboratory: Laboratory) -> Facts:
    """Check which members of 2.10's transforms a server silently drops, and whether it adds metadata."""
    account = await laboratory.account()
    transform = {"src": "in.*", "dest": "t.$1"}
    await account.create("O", subjects=["in.*"])
    created = await account.create(
        "T", subjects=["t.>"], subject_transform=transform, sources=[{"name": "O", "subject_transforms": [transform]}]
    )
    mirror = await account.create("M", mirror={"name": "O", "subject_transforms": [transform]})
    return {
        "subject_transform": created.get("subject_transform"),
        "source": created["sources"][0].get("subject_transforms"),
        "mirror": mirror["mirror"].get("subject_transforms"),
        "metadata_of_the_server": any(name.startswith("_nats.") for name in created.get("metadata") or ()),
    }
