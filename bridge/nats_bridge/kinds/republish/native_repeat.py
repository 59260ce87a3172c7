"""Finds out whether a stream's own republish sends the same messages as a rule, as it does after a handoff. Pure."""

from nats_bridge.client.jetstream_api import Json
from nats_transforms.dialect import Dialect
from nats_transforms.errors import EngineError
from nats_transforms.republish import Republish, compile_republish
from nats_transforms.subject import ANY, DOT
from nats_transforms.subject_patterns import EVERYTHING, Pattern

_LONGEST_REST = 3  # tokens that are tried for a `>`


def sent_twice(rule: Republish, config: Json, server: Dialect) -> Pattern | None:
    """Return subjects whose messages both the rule and the server send to the same subject; None if none exist.

    One example for each number of tokens decides. Destinations that are equal only for particular tokens, such as those
    of `$1.$2` and `$2.$1`, are not found. `where` is ignored, because its messages are sent twice.

    Args:
        rule: the compiled rule, whose target is the stream's account.
        config: the stream's configuration.
        server: the dialect of its server.
    """
    given = config.get("republish")
    if not given:
        return None
    try:
        native = compile_republish(rule.stream, given, server)
    except (EngineError, TypeError):
        return None  # an option of a newer server; its effect is unknown
    both = Pattern.of_transform(rule.transform).meet(Pattern.of_transform(native.transform))
    brought = any(config.get(member) for member in ("mirror", "sources", "subject_transform"))
    stored = [EVERYTHING] if brought else map(Pattern.of, config.get("subjects") or ())
    for subjects in stored:
        common = both.meet(subjects) if both is not None else None
        if common is not None and any(_same(rule, native, common, more) for more in range(_LONGEST_REST + 1)):
            return common
    return None


def _same(rule: Republish, native: Republish, subjects: Pattern, more: int) -> bool:
    """Return whether both send an example of some subjects to the same destination.

    `more` is the number of extra tokens.
    """
    if more and not subjects.rest:
        return False
    tokens = (*subjects.tokens, *([ANY] * more))
    example = DOT.join(b"any%d" % at if token == ANY else bytes(token) for at, token in enumerate(tokens))  # type: ignore[arg-type]
    sent = rule.destination(example) if example else None
    return sent is not None and sent == native.destination(example)
