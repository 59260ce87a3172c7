"""Checks whether an ingress rule may run, before it starts and whenever a stream of the account changes."""

from dataclasses import dataclass

from nats_bridge.client.connection import Connection
from nats_bridge.consuming.missing_streams import existing_stream
from nats_bridge.errors import ConfigError, RuleRefusedError
from nats_bridge.kinds.ingress.model import SubjectTransformRule
from nats_bridge.rules.loops.subject_overlap import first_matching
from nats_transforms.dialect import Dialect
from nats_transforms.errors import TransformError
from nats_transforms.subject import collide, is_wild
from nats_transforms.transform import Transform, compile_mapping, compile_transform


@dataclass(frozen=True, slots=True)
class IngressTarget:
    """The stream of an ingress rule: its subjects, and the transform that it has itself (`src to dest`, or empty)."""

    subjects: tuple[bytes, ...]
    own_transform: str


def compile_ingress(rule: SubjectTransformRule, dialect: Dialect, inbox_prefix: str = "_INBOX") -> Transform:
    """Return the rule's transform, with the checks that need the server's dialect and the connection's inboxes.

    Args:
        dialect: whose checks.
        inbox_prefix: under which the connection gets its answers.

    Raises:
        ConfigError: it cannot be one.
    """
    place = f"rule '{rule.name}': subject_transform"
    source, destination = rule.subject_transform.src, rule.subject_transform.dest
    pattern = source.encode()
    for token in source.split("."):
        if token.startswith("*") and token != "*":
            meant = "any token" if is_wild(token.encode(), by_first_byte=dialect.first_byte_is_wildcard) else "itself"
            raise ConfigError(
                f"{place}: src '{source}': token '{token}' stands for {meant} in a stream's transform. The sidecar"
                " cannot subscribe to that; write '*', or a token without '*'"
            )
    for taken in ("_R_.>", f"{inbox_prefix}.>"):
        if collide(pattern, taken.encode()):
            raise ConfigError(
                f"{place}: src '{source}' would take messages of '{taken}', which no rule may; name the subjects that"
                " publishers use"
            )
    build = compile_mapping if dialect.stream_transforms_are_mappings else compile_transform
    try:
        transform = build(pattern, destination.encode(), dialect)
    except TransformError as error:
        raise ConfigError(f"{place}: from '{source}' to '{destination}': {error.reason}") from None
    if transform.defects:
        raise ConfigError(f"{place}: dest '{destination}': partition of 0 crashes servers of {dialect}; use 1 or more")
    return transform


async def read_stream(rule: SubjectTransformRule, transform: Transform, connection: Connection) -> IngressTarget:
    """Check that the stream exists and stores the rule's destination, and that no stream stores its source.

    Raises:
        StreamMissingError: the stream does not exist.
        RuleRefusedError: the rule cannot work with the streams as they are.
        ApiError: the server refuses, or does not answer.
    """
    place = f"rule '{rule.name}'"
    config = (await existing_stream(connection, rule.name, rule.stream))["config"]
    subjects = config.get("subjects") or []
    source, destination = rule.subject_transform.src, rule.subject_transform.dest
    if first_matching(transform, subjects) is None:
        takes = f"its subjects are {', '.join(subjects)}" if subjects else "it has no subjects"
        raise RuleRefusedError(f"{place}: stream '{rule.stream}' does not take '{destination}': {takes}")
    takers = await connection.api.stream_names(subject=source)
    if takers:
        raise RuleRefusedError(
            f"{place}: src '{source}' is taken by stream {_named(takers)} already: messages would be stored"
            " untransformed as well, and publishers answered twice; use subjects that no stream has"
        )
    own = config.get("subject_transform")
    return IngressTarget(
        tuple(subject.encode() for subject in subjects),
        f"{own.get('src') or '>'} to {own['dest']}" if own and own.get("dest") else "",
    )


def _named(streams: list[str]) -> str:
    return " and ".join(f"'{stream}'" for stream in streams[:3]) + (" and others" if len(streams) > 3 else "")
