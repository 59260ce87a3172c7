"""Checks an update: the members that must not change, and the errors that only appear when the server applies it."""

from typing import Any

from nats_transforms.dialect import Dialect
from nats_transforms.stream_config.refusals import invalid, not_updated, refusal
from nats_transforms.stream_config.sources import identity, transform_error

_ONLY_FROM_FALSE = (
    ("sealed", "unseal a sealed stream"),
    ("deny_delete", "cancel deny message deletes"),
    ("deny_purge", "cancel deny purge"),
)


def check_changes(config: dict[str, Any], previous: dict[str, Any], dialect: Dialect) -> None:
    """Refuse changes that the server does not make."""
    can_not = "stream configuration update can not"
    if not dialect.max_consumers_can_be_edited and config["max_consumers"] != previous["max_consumers"]:
        raise invalid(f"{can_not} change MaxConsumers")
    if config["storage"] != previous["storage"]:
        raise invalid(f"{can_not} change storage type")
    retentions = {config["retention"], previous["retention"]}
    if len(retentions) > 1:
        if not dialect.retention_can_be_edited:
            raise invalid(f"{can_not} change retention policy")
        if "workqueue" in retentions:
            raise invalid(f"{can_not} change retention policy to/from workqueue")
    if previous.get("template_owner"):
        raise invalid("stream configuration update not allowed on template owned stream")
    if config.get("template_owner"):
        raise invalid(f"{can_not} be owned by a template")
    for member, what in _ONLY_FROM_FALSE:
        if previous[member] and not config[member]:
            raise invalid(f"{can_not} {what}")
    promotes = config["mirror"] is None and dialect.mirror_can_be_removed
    if config["mirror"] != previous["mirror"] and not promotes:
        raise refusal("mirror_update")
    if config["republish"] != previous["republish"] and not dialect.republish_can_be_edited:
        raise invalid(f"{can_not} change RePublish")
    _check_message_ttl(config, previous, dialect)
    if config.get("allow_msg_counter") != previous.get("allow_msg_counter"):
        raise invalid(f"{can_not} change message counter setting")
    if previous.get("allow_msg_schedules") and not config.get("allow_msg_schedules"):
        raise invalid("message schedules can not be disabled")
    if config.get("persist_mode") != previous.get("persist_mode"):
        raise invalid(f"{can_not} change persist mode")
    seal(config)


def seal(config: dict[str, Any]) -> None:
    """Apply the effect of `sealed` to the other members, in place."""
    if config["sealed"]:
        config.update(max_age=0, discard="new", deny_delete=True, deny_purge=True, allow_rollup_hdrs=False)


def _check_message_ttl(config: dict[str, Any], previous: dict[str, Any], dialect: Dialect) -> None:
    before, after = previous.get("allow_msg_ttl"), config.get("allow_msg_ttl")
    if before != after and not dialect.delete_markers_turn_on_what_they_need:
        raise invalid("message TTL status can not be changed after stream creation")
    if before and not after:
        raise invalid("message TTL status can not be disabled")


def carry_out(config: dict[str, Any], previous: dict[str, Any], dialect: Dialect) -> None:
    """The last step of an update, with the errors that only show there (2.10) and its republish default."""
    if not dialect.republish_can_be_edited:
        return
    known = {identity(source) for source in previous["sources"]}
    for source in config["sources"]:
        if identity(source) in known:
            continue
        for transform in source["subject_transforms"]:
            reason = transform_error(transform, dialect)
            if reason:
                raise not_updated(f"unable to get subject transform for source: {reason}")
    rule = config["republish"]
    if rule is not None and not rule["dest"]:
        # Native defect: an update gives a rule without destination the destination `>`, the message's own subject.
        rule["dest"] = ">"
        reason = transform_error(rule, dialect)
        if reason:
            raise not_updated(f"stream configuration for republish from '{rule['src']}' to '{rule['dest']}': {reason}")
    ingress = config["subject_transform"]
    if ingress is not None and ingress != previous["subject_transform"]:
        reason = transform_error(ingress, dialect)
        if reason:
            raise not_updated(
                f"stream configuration for subject transform from '{ingress['src']}' to '{ingress['dest']}': {reason}"
            )
