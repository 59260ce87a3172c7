"""The findings of a check of a configuration, alone or against the cluster."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One finding about a rule, or about the cluster.

    Attributes:
        rule: the rule's name; empty for a finding about no rule.
        ok: whether the rule can run.
        code: the error's code, `loop`, or `good`. Some do not block a rule: `native_loop`, `not_seen`,
            `untested_server` and `unreadable` (a file), which are about no rule; `literal`, for a destination that is
            probably a mistake; `reserved`, for messages that would be commands to the server; and `diverges`, for a
            difference to native behaviour.
        text: one or two lines.
        err_code: the number of a server's own error, if the finding is that a server would refuse it; else 0.
    """

    rule: str
    ok: bool
    code: str
    text: str
    err_code: int = 0

    @property
    def warns(self) -> bool:
        """Whether it is a warning, which stops nothing."""
        return self.ok and self.code != "good"

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        found = asdict(self)
        if not self.err_code:
            del found["err_code"]
        return found
