"""What a look at a configuration, or at the cluster for it, finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found about a rule, or about the cluster.

    Attributes:
        rule: the rule's name; empty if it is about none in particular.
        ok: whether the rule can run.
        code: the error's code, `loop`, or `good`; `native_loop` and `not_seen` are about no rule and in nobody's way,
            nor are `literal`, about a destination that is probably not as it was meant, and `diverges`, about what
            will be otherwise than natively.
        text: one or two lines.
    """

    rule: str
    ok: bool
    code: str
    text: str

    @property
    def warns(self) -> bool:
        """Whether it should be known, and stops nothing."""
        return self.ok and self.code != "good"

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        return asdict(self)
