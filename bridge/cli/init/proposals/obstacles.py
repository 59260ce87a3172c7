"""What stands in the way of proposed rules, as far as what was seen shows it: malformed, or a loop. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from nats_bridge.bridge.cli.init.proposals.landscape import Landscape
from nats_bridge.bridge.cli.init.proposals.proposed_rule import ProposedRule
from nats_bridge.bridge.rules.loops.moves import Reach
from nats_bridge.bridge.rules.loops.search import find_loops
from nats_bridge.bridge.settings import Settings
from nats_bridge.bridge.settings.checks import rule_problems
from nats_bridge.bridge.settings.problems import path_text

__all__ = ["obstacle"]


def obstacle(rule: ProposedRule, others: Sequence[ProposedRule], seen: Landscape) -> str | None:
    """Why a rule must not be proposed beside others; None if nothing speaks against it.

    Args:
        rule: the rule.
        others: those that are proposed already.
        seen: the cluster as it will be when they run.
    """
    try:
        settings = Settings.model_validate({"rules": [each.data for each in (*others, rule)]})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'][3:])}: {first['msg']}"
    mine = settings.rules[-1]
    for problem in rule_problems([(0, mine)], settings.dialect, settings.connections):
        return f"{path_text(problem.path[2:])}: {problem.message}"
    reach = Reach("default", list(seen.streams.values()), seen.server)
    loop = next((loop for loop in find_loops(settings, {"default": reach}) if loop.rule == rule.name), None)
    return None if loop is None else f"loop: {loop.path}: choose a destination outside"
