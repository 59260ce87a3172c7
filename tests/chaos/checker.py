"""The judge: compares, from the story alone, what each rule did with what it promises.

Theory of operation: a republished message names its original (`Nats-Sequence`), a copy does so in its source record, a
twin has its sequence. So every published message is compared with its original, and a missing one is known by its
sequence. What a promise allows is allowed only where the story has a reason for it. A message that came
twice with `at_least_once` needs something broken between the two; one that was lost with `at_most_once` needs a crash
between its neighbours, or a counter by which the rule itself reported it. What the run itself removed, or a server
lost, is no rule's fault: `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.chaos.beginning_again import begun_again
from tests.chaos.copied import copied, twin
from tests.chaos.delivered import dead_letters, ingress
from tests.chaos.findings import Judgement, Verdict
from tests.chaos.history import ADVISORIES, read_history
from tests.chaos.kept import key_by_key, marked
from tests.chaos.plan import EXPIRING, IN_MEMORY, LEASED, RuleUnderTest
from tests.chaos.republished import republished
from tests.chaos.story import Story


def judge(story: Story, rules: Iterable[RuleUnderTest]) -> list[Judgement]:
    """Judge every rule, and the sidecar as a whole."""
    return [*(judge_rule(story, rule) for rule in rules), judge_process(story)]


def judge_history(history: Path, rules: Iterable[RuleUnderTest]) -> tuple[Story, list[Judgement]]:
    """Judge a recorded run rule by rule: the messages of all rules of an hour do not fit into memory.

    Args:
        history: the file.
        rules: which rules to judge.

    Returns:
        The story without messages, except for the sequences of acknowledged ones, and the judgements.

    Raises:
        ValueError, KeyError, TypeError: it is not the history of a run.
    """
    whole = Story.of(read_history(history, ()))
    judgements = []
    for rule in rules:
        story = Story.of(read_history(history, {rule.name, *rule.sources, rule.target, ADVISORIES}))
        judgements.append(judge_rule(story, rule))
        whole.acknowledged |= story.acknowledged
    return whole, [*judgements, judge_process(whole)]


def judge_rule(story: Story, rule: RuleUnderTest) -> Judgement:
    """Judge a rule by the messages of its sources and its target, or its subscribers."""
    judgement = Judgement(rule.name, rule.kind, rule.promise)
    if IN_MEMORY & set(rule.sources):
        begun_again(judgement, story, rule)
    elif rule.kind == "republish":
        republished(judgement, story, rule)
    elif LEASED in rule.sources:
        marked(judgement, story, rule)
    elif rule.kind == "kv_sources" or rule.target in EXPIRING:
        key_by_key(judgement, story, rule)
    elif rule.document.get("keep_sequence"):
        twin(judgement, story, rule)
    elif rule.promise == "exactly_once":
        copied(judgement, story, rule)
    elif rule.kind == "subject_transform":
        ingress(judgement, story, rule)
    else:
        dead_letters(judgement, story, rule)
    return judgement


def judge_process(story: Story) -> Judgement:
    """Judge the sidecar as a whole."""
    judgement = Judgement("(sidecar)", "process", "keeps running")
    for what in story.unsettled:
        judgement.add("stuck", "violation", what, story.end)
    for text in story.refused:
        judgement.add("refused", "violation", text, story.end)
    for at, reason in story.ended_badly:
        # An end in the middle of a fault can be right (a server that is away at the start); never without one.
        verdict: Verdict = "allowed" if story.broken(at - 30, at - 0.001) else "violation"
        judgement.add("ended", verdict, reason, at)
    return judgement
