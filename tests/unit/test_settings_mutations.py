"""Ten thousand broken configurations: each is taken, or refused with a place in the file; nothing else ever happens."""

import json
import random
import re
import string
from collections.abc import Callable
from pathlib import Path

import pytest

from nats_bridge.cli.entry import main
from nats_bridge.errors import EXIT_NO, EXIT_USAGE, ConfigError
from nats_bridge.settings import load
from tests.unit.test_settings_robust import GOOD

MUTATIONS, PARTS = 10_000, 20
THROUGH_THE_COMMAND = 40
_CONFIGS = Path(__file__).resolve().parents[2] / "config"
_PLACE = re.compile(r":([0-9]+):([0-9]+): .+")
_WORDS = (
    *("null", "true", "-1", "0", "1e400", "18446744073709551616", ".nan", "2026-01-01", "''", '"', "[]", "{}", "[["),
    *("&a", "*a", "!!python/object:os.system", "!!binary x", "<<: *a", "---", "...", "%YAML 9", "? x", "| ", ">-", "#"),
    *("$", "$99", "{{partition(0,1)}}", "{{wildcard(1)}}", "*", ">", "a..b", "\t", "\u0085", "\x00", "\ud800"),
    *("rules", "connections", "name", "kind", "republish", "sources", "mirror", "servers", "default", "from", "to"),
    *("nats://", "nats://h:99999", "tls://[::1", "$JS.API.>", "KV_", "a" * 300),
)  # fmt: skip


def _delete(text: str, chance: random.Random) -> str:
    start = chance.randrange(len(text))
    return text[:start] + text[start + chance.choice((1, 1, 2, 10)) :]


def _insert(text: str, chance: random.Random) -> str:
    place = chance.randrange(len(text) + 1)
    return text[:place] + chance.choice((chance.choice(_WORDS), chance.choice(string.printable))) + text[place:]


def _replace_token(text: str, chance: random.Random) -> str:
    tokens = list(re.finditer(r"[^\s,:\[\]{}\"]+", text))
    if not tokens:  # an earlier mutation left nothing but separators
        return _insert(text, chance)
    token = chance.choice(tokens)
    other = chance.choice((chance.choice(_WORDS), chance.choice(tokens)[0]))
    return text[: token.start()] + other + text[token.end() :]


def _lines(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    here, there = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(5):
        case 0:
            del lines[here]
        case 1:
            lines.insert(there, lines[here])
        case 2:
            lines[here], lines[there] = lines[there], lines[here]
        case 3:
            lines[here] = " " * chance.randrange(4) + lines[here]
        case _:
            lines[here] = lines[here].lstrip(" ")
    return "".join(lines)


def _cut(text: str, chance: random.Random) -> str:
    return text[: chance.randrange(len(text))]


_MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (_delete, _insert, _replace_token, _lines, _lines, _cut)
_WEIGHTS = (3, 4, 6, 3, 2, 1)


def _good() -> list[str]:
    """The valid files, without their comments, which cannot be broken."""
    files = [path.read_text("utf-8") for path in sorted(_CONFIGS.glob("*.yaml"))]
    bare = ["".join(line for line in text.splitlines(keepends=True) if line.lstrip()[:1] != "#") for text in files]
    whole = json.loads(json.dumps(GOOD))
    del whole["connections"]["default"]["tls"]  # which would load the machine's certificates each time
    return [*bare, json.dumps(whole, indent=1)]  # JSON is YAML


def _mutated(seed: int, good: list[str]) -> bytes:
    chance = random.Random(seed)
    text = chance.choice(good)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        (mutate,) = chance.choices(_MUTATIONS, _WEIGHTS)
        text = mutate(text, chance) or "x"
    return text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in range(1, PARTS))])
def test_every_mutation_is_taken_or_refused_at_a_place(part: int, tmp_path: Path) -> None:
    good, file = _good(), tmp_path / "bridge.yaml"
    refused = 0
    for seed in range(part, MUTATIONS, PARTS):
        content = _mutated(seed, good)
        file.write_bytes(content)
        try:
            assert load(file, {}).rules
        except ConfigError as error:
            refused += 1
            _has_places(error.problems, str(file), content, seed)
    assert refused > MUTATIONS / PARTS / 3, "the mutations break too little to show anything"


def _has_places(problems: tuple[str, ...], file: str, content: bytes, seed: int) -> None:
    lines = re.split("\r\n|[\n\r\x85\u2028\u2029]", content.decode("utf-8", "replace"))
    assert problems, seed
    for problem in problems:
        place = _PLACE.fullmatch(problem.removeprefix(file))
        assert place is not None, (seed, problem)
        line, column = int(place[1]), int(place[2])
        assert 1 <= line <= len(lines) + 1, (seed, problem)
        # Behind the end of a line is where something is missing; a byte that is no UTF-8 counts as itself.
        longest = len(lines[line - 1].encode()) if line <= len(lines) else 0
        assert 1 <= column <= longest + 1, (seed, problem)


def test_the_command_ends_with_two_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, file = _good(), tmp_path / "bridge.yaml"
    seen = set()
    for seed in range(THROUGH_THE_COMMAND):
        content = _mutated(seed, good)
        file.write_bytes(content)
        with pytest.raises(SystemExit) as ended:
            main(["check", "-c", str(file)])
        said = capsys.readouterr()
        seen.add(ended.value.code)
        if ended.value.code == EXIT_USAGE:
            assert _PLACE.search(said.err), (seed, said.err)
        elif ended.value.code == EXIT_NO:
            assert "FAILED" in said.out or "failed" in said.out, (seed, said.out)  # the file's own tests
        else:
            assert ended.value.code == 0, (seed, said.err)
        assert "Traceback" not in said.err + said.out, seed
        assert "unexpected" not in said.err.splitlines()[0] if said.err else True, (seed, said.err)
    assert seen >= {0, EXIT_USAGE}
