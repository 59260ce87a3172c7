"""What `nats-bridge init` asks on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from nats_bridge.bridge.cli.init.draft import Draft
from nats_bridge.bridge.cli.init.proposals import asked_for
from nats_bridge.bridge.cli.init.proposals.asked_for import HowToRepublish
from nats_bridge.bridge.cli.init.proposals.proposed_rule import ProposedRule
from nats_bridge.bridge.cli.init.proposals.suggestions import Suggestion, suggestions
from nats_bridge.bridge.errors import ConfigError
from nats_bridge.bridge.kinds.republish.side_effects import CONSUMER_RETENTIONS
from nats_bridge.bridge.observability.printable import printable

__all__ = ["interview"]

_KINDS = ("republish", "sources", "transform", "dead-letters", "done")


def interview(draft: Draft, *, err: bool) -> None:
    """Ask what the rules should do, until that is all; each answer is checked on the cluster at once.

    Args:
        draft: takes the rules.
        err: whether to ask on stderr, because stdout is for the configuration.
    """
    _Interview(draft, err).ask()


class _Interview:
    def __init__(self, draft: Draft, err: bool) -> None:
        self._draft = draft
        self._seen = draft.seen
        self._err = err
        self._suggested = suggestions(draft.seen)

    def ask(self) -> None:
        if self._suggested:
            self._say("\nThe streams suggest:")
            for number, suggestion in enumerate(self._suggested, 1):
                self._say(f"  {number}  {printable(suggestion.option)}  # {printable(suggestion.note)}")
        numbers = [str(number) for number in range(1, len(self._suggested) + 1)]
        self._say(
            f"\n{'A number takes it, with questions. ' if numbers else ''}republish: announce what a stream stores."
            " sources: copy from streams into one.\ntransform: other subjects at a stream's ingress. dead-letters: keep"
            " what consumers give up."
        )
        while True:
            choice = self._prompt(
                "What should a rule do",
                default="done" if self._draft.rules else None,
                type=click.Choice([*numbers, *_KINDS]),
                show_choices=False,
            )
            if choice == "done":
                return
            rule = self._from(self._suggested[int(choice) - 1]) if choice in numbers else self._by_kind(choice)
            if rule is None:
                continue
            reason = self._draft.add(rule)
            if reason is None:
                self._say(f"{click.style('ok ', fg='green')} {self._draft.rules[-1].name}")
            else:
                self._say(f"{click.style('no ', fg='red')} {printable(reason)}")

    def _from(self, suggestion: Suggestion) -> ProposedRule | None:
        match suggestion.words:
            case ("--republish", stream, src, dest, *_):
                return self._republish(stream, src, dest)
            case (_, stream, dest):
                return self._dead_letters(stream, dest)
        return None

    def _by_kind(self, kind: str) -> ProposedRule | None:
        makers: dict[str, Callable[[], ProposedRule | None]] = {
            "republish": self._any_republish,
            "sources": self._sources,
            "transform": self._transform,
            "dead-letters": lambda: self._dead_letters(self._prompt("Stream, or * for all", default="*"), None),
        }
        return makers[kind]()

    def _any_republish(self) -> ProposedRule | None:
        stream = self._stream("Stream")
        subjects = self._seen.streams[stream]["config"].get("subjects") or []
        return self._republish(stream, subjects[0] if len(subjects) == 1 else ">", None)

    def _republish(self, stream: str, src: str, dest: str | None) -> ProposedRule | None:
        src = self._prompt(f"Subjects of {stream}", default=src)
        dest = self._prompt("Destination", default=dest)
        retention = self._seen.streams[stream]["config"].get("retention")
        if retention in CONSUMER_RETENTIONS:
            effect = asked_for.side_effect_of(self._seen, stream)
            if effect and not self._confirm(f"{stream} {effect}. Accept that?"):
                return None
            return asked_for.republishing(self._seen, stream, src, dest, HowToRepublish(side_effects=True))
        self._say("at_most_once: nothing twice, a crash loses messages in flight. at_least_once: nothing lost.")
        delivery = self._prompt(
            "Delivery", default="at_most_once", type=click.Choice(["at_most_once", "at_least_once"])
        )
        return asked_for.republishing(self._seen, stream, src, dest, HowToRepublish(delivery))

    def _sources(self) -> ProposedRule:
        target = self._stream("Stream that receives")
        entries = []
        while True:
            origin = self._stream("Origin")
            src = self._prompt(f"Subjects of {origin}", default=">")
            takes = ", ".join(self._seen.streams[target]["config"].get("subjects") or ()) or "no subjects"
            dest = self._prompt(f"Destination ({target} takes {takes})")
            entries.append((origin, src, dest))
            if not self._confirm("Another origin, or other subjects?"):
                return asked_for.copying(self._seen, target, entries)

    def _transform(self) -> ProposedRule:
        stream = self._stream("Stream")
        takes = ", ".join(self._seen.streams[stream]["config"].get("subjects") or ()) or "no subjects"
        src = self._prompt("Subjects that publishers use")
        return asked_for.ingress(self._seen, stream, src, self._prompt(f"Destination ({stream} takes {takes})"))

    def _dead_letters(self, stream: str, dest: str | None) -> ProposedRule | None:
        if stream != "*":
            try:
                asked_for.known_stream(self._seen, stream)
            except ConfigError as error:
                self._say(str(error))
                return None
        usual = "dlq.{{wildcard(1)}}.{{wildcard(2)}}" if stream == "*" else f"dlq.{stream}.{{{{wildcard(1)}}}}"
        return asked_for.dead_letters(self._seen, stream, self._prompt("Destination", default=dest or usual))

    def _stream(self, text: str) -> str:
        def known(value: str) -> str:
            try:
                return asked_for.known_stream(self._seen, value)
            except ConfigError as error:
                raise click.UsageError(str(error)) from None

        names = list(self._seen.streams)
        return str(self._prompt(text, default=names[0] if len(names) == 1 else None, value_proc=known))

    def _prompt(self, text: str, **options: Any) -> Any:
        return click.prompt(text, err=self._err, **options)

    def _confirm(self, text: str) -> bool:
        return click.confirm(text, default=False, err=self._err)

    def _say(self, text: str) -> None:
        click.echo(text, err=self._err)
