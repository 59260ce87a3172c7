"""Checks the stream's own transforms: `subject_transform` at its ingress, and `republish`."""

from collections.abc import Sequence
from typing import Any

from nats_transforms.dialect import Dialect
from nats_transforms.stream_config.refusals import invalid, pedantic
from nats_transforms.stream_config.sources import check_as_mapping, transform_error
from nats_transforms.stream_config.texts import collide


def check_ingress(config: dict[str, Any], dialect: Dialect) -> None:
    """The ingress transform, as 2.11 and newer check it before anything is built."""
    transform = config.get("subject_transform")
    if transform is None or not dialect.stream_transforms_are_mappings:
        return
    check_as_mapping(transform, "ingress", dialect)


def check_republish(config: dict[str, Any], dialect: Dialect) -> None:
    """Check the republish rule. Fill in an empty source, and both fields of an implicit rule, in place."""
    rule = config["republish"]
    if rule is None:
        return
    subjects: Sequence[str] = config["subjects"]
    if not rule["src"]:
        if config.get("pedantic"):
            # 2.11 and 2.12's first versions repeat the first words.
            raise pedantic("republish source can not be empty", repeats=not dialect.stream_fields_of_2_12)
        rule["src"] = ">"
    _make_implicit(config, dialect)
    source, destination = rule["src"], rule["dest"]
    if not dialect.republish_source_may_miss_subjects and not any(
        collide(source, subject, dialect) for subject in subjects
    ):
        raise invalid("stream configuration for republish source is not valid subset of subjects")
    if any(collide(destination, subject, dialect) for subject in subjects):
        raise invalid("stream configuration for republish destination forms a cycle")
    if transform_error(rule, dialect):
        which = f" with transform from '{source}' to '{destination}'" if dialect.republish_can_be_edited else ""
        raise invalid(f"stream configuration for republish{which} not valid")


def _make_implicit(config: dict[str, Any], dialect: Dialect) -> None:
    rule, ingress, subjects = config["republish"], config.get("subject_transform"), config["subjects"]
    if not dialect.implicit_republish or ingress is None or rule["src"] != ">" or rule["dest"] != ">":
        return
    if len(subjects) != 1 or subjects[0] != ingress["src"]:
        return
    if config.get("pedantic"):
        raise pedantic("implicit republish based on subject transform")
    rule["src"] = rule["dest"] = ingress["dest"]
