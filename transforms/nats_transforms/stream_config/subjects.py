"""The stream's own subjects: default, validity, overlap with each other and with the server's own subjects."""

from typing import Any

from nats_transforms.dialect import Dialect
from nats_transforms.stream_config.refusals import invalid, refusal
from nats_transforms.stream_config.texts import collide, is_subset, is_valid_subject


def check_subjects(config: dict[str, Any], dialect: Dialect) -> None:
    """Fill in the stream's name if it has neither subject nor source, and check each subject."""
    subjects: list[str] = config["subjects"]
    if not subjects:
        if config["mirror"] is None and not config["sources"]:
            config["subjects"] = [config["name"]]
        return
    if config["mirror"] is not None:
        raise refusal("mirror_with_subjects")
    seen: set[str] = set()
    for position, subject in enumerate(subjects):
        if dialect.api_subjects_need_no_ack:
            _check_valid(subject)
            _check_unique(subject, seen)
            _check_reserved(subject, config, dialect)
        else:
            _check_unique(subject, seen)
            if is_subset(subject, "$JS.API.>", dialect):
                raise invalid("subjects overlap with jetstream api")
            _check_valid(subject)
        if dialect.subject_overlap_is_checked_per_subject:
            _check_overlap(subject, subjects[position + 1 :], dialect)
        seen.add(subject)
    if not dialect.subject_overlap_is_checked_per_subject:
        for subject in subjects:
            _check_overlap(subject, [other for other in subjects if other != subject], dialect)


def _check_valid(subject: str) -> None:
    if not is_valid_subject(subject):
        raise invalid("invalid subject")


def _check_unique(subject: str, seen: set[str]) -> None:
    if subject in seen:
        raise invalid("duplicate subjects detected")


def _check_overlap(subject: str, others: list[str], dialect: Dialect) -> None:
    for other in others:
        if collide(other, subject, dialect):
            raise invalid(f"subject {_quoted(subject)} overlaps with {_quoted(other)}")


def _quoted(subject: str) -> str:
    return '"' + subject.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check_reserved(subject: str, config: dict[str, Any], dialect: Dialect) -> None:
    if subject == ">":
        if not config["no_ack"]:
            raise invalid("capturing all subjects requires no-ack to be true")
        if config["num_replicas"] != 1:
            raise invalid("capturing all subjects requires replicas of 1")
    if config["no_ack"]:
        return
    overlaps = collide if dialect.api_subjects_need_no_ack_when_overlapping else is_subset
    spaces = ["$JS.>", "$JSC.>"]
    if dialect.api_subjects_need_no_ack_when_overlapping:
        spaces.append("$NRG.>")
    if any(overlaps(subject, space, dialect) for space in spaces) and not is_subset(subject, "$JS.EVENT.>", dialect):
        raise invalid("subjects that overlap with jetstream api require no-ack to be true")
    if overlaps(subject, "$SYS.>", dialect) and not is_subset(subject, "$SYS.ACCOUNT.>", dialect):
        raise invalid("subjects that overlap with system api require no-ack to be true")
