"""Detects whether reading a stream would change its contents.

A work-queue or interest stream removes a message when its consumers are done with it, so one more consumer matters.
Only a `direct` consumer (as servers use among themselves) removes nothing, and only if other consumers already match
every message that it matches. It then delays the removal of a message until the server has sent it. Without other
consumers it would drain a work queue, and it would count as interest on an interest stream.

After a crash or a lost connection, the server keeps messages until it removes the inactive consumer. An interest stream
then removes them, but a work queue never does: messages that its workers acknowledged in that time stay. So no way to
watch a work queue is free of side effects. (All measured on 2.9.10, 2.10.27 and 2.15.1.)
"""

from collections.abc import Sequence

from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.replay import filters_of
from nats_transforms.subject import is_subset

CONSUMER_RETENTIONS = ("workqueue", "interest")


def reason_against_watching(
    stream_config: Json, consumers: Sequence[Json], watched: str | None, *, durable: bool, at_least_once: bool
) -> str | None:
    """Return the reason why a rule would change the stream; None if it would not.

    Args:
        stream_config: the stream's configuration.
        consumers: its consumers, each as `CONSUMER.INFO` gives it.
        watched: the rule's filter; None for all subjects.
        durable: whether the rule wants its position kept on the server.
        at_least_once: its delivery mode.
    """
    retention = stream_config.get("retention")
    if retention not in CONSUMER_RETENTIONS:
        return None
    what = "a work-queue" if retention == "workqueue" else "an interest"
    if at_least_once:
        return (
            f"is {what} stream: delivery at_least_once needs a consumer that keeps messages until they are"
            " confirmed; use at_most_once"
        )
    if durable:
        return (
            f"is {what} stream: a durable consumer would keep messages in the queue while the sidecar is down; set "
            "durable: false"
        )
    subjects = [watched] if watched else list(stream_config.get("subjects") or [">"])
    for subject in subjects:
        if not any(_wants(consumer["config"], subject) for consumer in consumers):
            effect = (
                "watching would remove its messages"
                if retention == "workqueue"
                else "watching would count as interest and store messages that no other client wants"
            )
            return f"is {what} stream and no other consumer takes '{subject}': {effect}"
    if retention == "workqueue":
        return (
            "is a work-queue stream: messages that its workers take while the sidecar's connection breaks would "
            "stay in the queue"
        )
    return None


def _wants(config: Json, subject: str) -> bool:
    return any(is_subset(subject.encode(), wanted.encode()) for wanted in filters_of(config) or (">",))
