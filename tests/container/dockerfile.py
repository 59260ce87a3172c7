"""Reads a Dockerfile: its stages and their instructions, with arguments and variables filled in.

Only the forms that this project's Dockerfile uses are known; anything else is an error, so that nothing is passed over.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Dockerfile", "DockerfileError", "Instruction", "Stage", "allowed", "parse"]

_KNOWN = {
    *("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "HEALTHCHECK"),
    *("LABEL", "RUN", "STOPSIGNAL", "USER", "WORKDIR"),
}
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


class DockerfileError(Exception):
    """The file has something that this reader does not know."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name, its flags without dashes, and the words or the command after them."""

    name: str
    flags: Mapping[str, str]
    text: str

    @property
    def words(self) -> list[str]:
        """The JSON form's texts, or the words as a shell splits them."""
        if self.text.startswith("["):
            return [str(word) for word in json.loads(self.text)]
        return shlex.split(self.text)


@dataclass(slots=True)
class Stage:
    """What is built on one base image.

    Attributes:
        base: the image, arguments filled in.
        name: what `COPY --from` calls it.
        instructions: all but FROM and ARG, in order.
        environment: variables that hold at the end.
        labels: the image's labels.
    """

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def last(self, name: str) -> Instruction:
        """The instruction that counts, where the last one does."""
        found = [instruction for instruction in self.instructions if instruction.name == name]
        if not found:
            raise DockerfileError(f"the stage on {self.base} has no {name}")
        return found[-1]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """All stages; the last one is the image."""

    arguments: Mapping[str, str]
    stages: list[Stage]

    @property
    def image(self) -> Stage:
        """The stage that is kept."""
        return self.stages[-1]


def parse(text: str) -> Dockerfile:
    """Read a Dockerfile.

    Raises:
        DockerfileError: an instruction or a form that is not known here.
    """
    arguments: dict[str, str] = {}
    local: dict[str, str] = {}
    stages: list[Stage] = []
    for name, rest in _instructions(text):
        if name not in _KNOWN:
            raise DockerfileError(f"{name}: not known to this reader")
        if name == "ARG":
            key, equals, value = rest.partition("=")
            if not equals:
                raise DockerfileError(f"ARG {key}: needs a default")
            (local if stages else arguments)[key] = value
            continue
        if name == "FROM":
            words = _filled(rest, arguments).split()
            if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
                raise DockerfileError(f"FROM {rest}: must be an image, or image AS name")
            stages.append(Stage(words[0], words[2] if len(words) == 3 else str(len(stages))))
            local = {}
            continue
        stage = stages[-1]
        if name == "RUN":
            stage.instructions.append(Instruction(name, {}, rest))
            continue
        flags, value = _flags(_filled(rest, {**stage.environment, **local}))
        instruction = Instruction(name, flags, value)
        stage.instructions.append(instruction)
        if name == "ENV":
            stage.environment |= _pairs(instruction)
        elif name == "LABEL":
            stage.labels |= _pairs(instruction)
    return Dockerfile(arguments, stages)


def allowed(path: str, patterns: str) -> bool:
    """Whether a file of the context, by its path in it, gets past the lines of a .dockerignore."""
    given = True
    parts = Path(path).parts
    for line in patterns.splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        wanted = pattern.removeprefix("!")
        if any(_matches("/".join(parts[:count]), wanted) for count in range(1, len(parts) + 1)):
            given = pattern.startswith("!")
    return given


def _matches(path: str, pattern: str) -> bool:
    expression = "".join(
        {"**/": "(?:.*/)?", "*": "[^/]*"}.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*)", pattern)
    )
    return re.fullmatch(expression, path) is not None


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    pending = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#") or (not line.strip() and not pending):
            continue
        if line.endswith("\\"):
            pending += line[:-1]
            continue
        name, _, rest = (pending + line).strip().partition(" ")
        pending = ""
        if "<<" in rest:
            raise DockerfileError(f"{name} {rest}: here-documents are not known to this reader")
        yield name, rest.strip()
    if pending:
        raise DockerfileError("the file ends in the middle of an instruction")


def _flags(text: str) -> tuple[dict[str, str], str]:
    flags = {}
    while text.startswith("--"):
        flag, _, text = text.partition(" ")
        key, _, value = flag[2:].partition("=")
        flags[key] = value
        text = text.lstrip()
    return flags, text


def _pairs(instruction: Instruction) -> dict[str, str]:
    pairs = dict(word.partition("=")[::2] for word in instruction.words)
    if any("=" not in word for word in instruction.words):
        raise DockerfileError(f"{instruction.name} {instruction.text}: must be key=value")
    return pairs


def _filled(text: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in variables:
            raise DockerfileError(f"{text}: nothing sets {name}")
        return variables[name]

    return _VARIABLE.sub(value, text)
