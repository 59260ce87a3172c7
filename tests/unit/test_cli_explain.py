"""`explain` for a person, as JSON, and line by line."""

import io
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from nats_bridge.cli import main
from nats_bridge.cli.explain import LineAnswerer, answer_stream
from nats_transforms.destination import Kind
from nats_transforms.dialect import NEWEST, dialect
from nats_transforms.transform import compile_transform


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out, printed.err


def test_every_token_says_how_it_came_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "orders.*.*", "o.{{partition(3,1,2)}}.{{wildcard(2)}}", "orders.eu.42")
    assert (code, err) == (0, "")
    assert (
        out
        == """\
source       orders.*.*
destination  o.{{partition(3,1,2)}}.{{wildcard(2)}}
server       2.15.3

orders.eu.42 → o.0.42

  #  token                 becomes  how
  1  o                     o        as it is written
  2  {{partition(3,1,2)}}  0        wildcard 1 (token 2) 'eu' and wildcard 2 (token 3) '42'; \
FNV-1a of 'eu42' is 3255256233, modulo 3 is 0
  3  {{wildcard(2)}}       42       wildcard 2 (token 3) '42'
"""
    )


def test_without_subjects_it_says_whether_a_server_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "a.*.>", "x.{{split(1,-)}}.{{left(1,2)}}.{{random(9)}}.$0.>")
    assert code == 0
    assert out.endswith("\ngood: servers of this version accept it\n")


FUNCTIONS = [
    ("{{split(1,-)}}", "a-b", "split on '-'"),
    ("{{splitFromLeft(1,1)}}", "abc", "cut after the first 1 bytes"),
    ("{{splitFromRight(1,1)}}", "abc", "cut before the last 1 bytes"),
    ("{{sliceFromLeft(1,2)}}", "abc", "cut into pieces of 2 bytes from the left"),
    ("{{sliceFromRight(1,2)}}", "abc", "cut into pieces of 2 bytes from the right"),
    ("{{left(1,2)}}", "abc", "the first 2 bytes"),
    ("{{right(1,2)}}", "abc", "the last 2 bytes"),
    ("{{left(1,9)}}", "abc", "(unchanged: that is all of it, or nothing)"),
    ("{{partition(5)}}", "abc", "the entire subject; FNV-1a of 'x.abc' is"),
    ("{{random(1)}}", "abc", "a random number below 1, another one next time"),
    ("$-1", "abc", "index -1, which means token 1 'x'"),
]
"""A token of each function, the subject's second token, and words of the explanation."""


@pytest.mark.parametrize(("token", "value", "how"), FUNCTIONS)
def test_every_function_has_words(capsys: pytest.CaptureFixture[str], token: str, value: str, how: str) -> None:
    code, out, _ = _run(capsys, "x.*", f"y.{token}", f"x.{value}")
    assert code == 0
    assert how in out


def test_no_function_is_left_out() -> None:
    tested = {part.kind for token, *_ in FUNCTIONS for part in compile_transform(b"x.*", token.encode()).parts}
    assert set(Kind) - {Kind.LITERAL, Kind.REST} == tested


def test_the_rest_of_the_subject(capsys: pytest.CaptureFixture[str]) -> None:
    assert "tokens 2 to 3" in _run(capsys, "a.>", "b.>", "a.x.y")[1]


def test_a_subject_that_does_not_match_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "a.*", "b.$1", "a.x", "c.x")
    assert code == 1
    assert "a.x → b.x\n" in out
    assert "c.x → no match: token 1 is c, the source wants a\n" in out


def test_a_transform_that_a_server_refuses_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "a.*", "b.{{left(1,2)}}", "--dialect", "2.10.15")
    assert (code, out) == (1, "")
    assert err == (
        "nats-server 2.10.15 rejects 'a.*' → 'b.{{left(1,2)}}':"
        " invalid mapping destination: unknown function in {{left(1,2)}}; newer servers support it\n"
    )


@pytest.mark.parametrize(
    ("destination", "remedy"),
    [
        ("b.$2", "the source has 1 wildcard (*)"),
        ("b.*", "'*' is not allowed there; use $1 or {{wildcard(1)}}"),
        ("b.{{partiton(3,1)}}", "did you mean 'partition'?"),
        ("b.{{wildcard(1)}}.{{LEFT(1,2)}}", "did you mean 'left'?"),
        ("b.{{wildcard}}", "its arguments are missing: {{wildcard(…)}}"),
        ("b.{{frob(1)}}", "known: wildcard, partition, splitFromLeft, splitFromRight, sliceFromLeft, "),
    ],
)
def test_a_refusal_comes_with_the_remedy_that_check_gives(
    destination: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = _run(capsys, "a.*", destination)
    assert code == 1
    assert f"; {remedy}" in err


def test_native_defects_and_bad_results_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    out = _run(capsys, "a.*", "b.{{partition(0,1)}}", "--dialect", "2.10")[1]
    assert "warning      partition of 0 crashes servers of this version at the first matching message\n" in out
    out = _run(capsys, "a.*", "b.{{split(1,-)}}", "a.-", "--dialect", "2.15")[1]
    assert "warning: the result is not a valid subject; republish drops it" in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "a.*", "b.$1", "a.x", "c", "--json")
    reported = json.loads(out)
    assert code == 1
    assert (reported["dialect"], reported["source"], reported["destination"]) == ("2.15.3", "a.*", "b.$1")
    assert [each["result"] for each in reported["explanations"]] == ["b.x", None]
    assert reported["explanations"][0]["tokens"][1]["inputs"] == [{"wildcard": 1, "position": 2, "value": "x"}]
    assert reported["explanations"][1]["mismatch"]["code"] == "different"
    code, out, _ = _run(capsys, "a.*", "b.$2", "--json")
    assert code == 1
    assert json.loads(out)["code"] == "index_out_of_range"


def test_bytes_that_are_not_utf8_are_escaped_and_plain_without_terminal() -> None:
    command = [sys.executable, "-m", "nats_bridge", "explain", "a.*", "b.$1"]
    done = subprocess.run([*command, b"a.\xff"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"a.\\xff \xe2\x86\x92 b.\\xff\n" in done.stdout
    assert b"\x1b" not in done.stdout


# --- line by line


def _line(request: Any, version: str = "2.15") -> Any:
    raw = request if isinstance(request, bytes) else json.dumps(request).encode()
    answer = LineAnswerer(dialect(version)).answer(raw)
    assert answer.endswith(b"\n")
    assert answer.count(b"\n") == 1
    assert answer.isascii()
    return json.loads(answer)


def _ask(source: str, destination: str, subject: str) -> dict[str, str]:
    return {"src": source, "dest": destination, "subject": subject}


def test_lines() -> None:
    assert _line(_ask("a.*", "b.$1", "a.x")) == {"subject": "b.x"}
    assert _line(_ask("a.*", "b.$1", "c.x")) == {"subject": None}
    assert _line(_ask("a.*", "b.$2", "a.x")) == {
        "error": "invalid mapping destination: wildcard index out of range in $2: [2]"
    }
    assert _line(_ask("a.*", "b.{{left(1,1)}}", "a.xy"), "2.10.27") == {"subject": "b.x"}
    assert _line({**_ask("a.*", "", "a.x"), "more": 1}) == {"subject": None}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "not valid JSON: "),
        (b"{", "not valid JSON: "),
        (b"[" * 100_000, "not valid JSON: "),
        (b"17", 'must be an object: {"src", "dest", "subject"}'),
        (b'{"src": "a"}', "dest, subject: must be a string"),
        (b'{"src": 1, "dest": "b", "subject": "c"}', "src: must be a string"),
        (b'{"src": "a", "dest": "b", "subject": "\\ud800"}', "'\\ud800' is half a surrogate pair, not a byte"),
    ],
)
def test_a_bad_line_is_an_answer(line: bytes, said: str) -> None:
    assert _line(line)["error"].startswith(said)


def test_subjects_that_are_not_utf8_are_surrogates_both_ways() -> None:
    assert _line(_ask("a.*", "b.{{sliceFromLeft(1,1)}}", "a.é")) == {"subject": "b.\udcc3.\udca9"}
    assert _line(_ask("a.*.*", "b.$2.$1", "a.\udcff.é")) == {"subject": "b.é.\udcff"}
    assert _line(b'{"src": "a.*", "dest": "b.$1", "subject": "a.\xff"}') == {"subject": "b.\udcff"}


class Chunks(io.BytesIO):
    """Input that comes in pieces; `seen` notes how much output had been flushed before each was read."""

    def __init__(self, pieces: list[bytes], sink: io.BytesIO) -> None:
        super().__init__()
        self.pieces, self.sink, self.seen = pieces, sink, [0]

    def read1(self, size: int | None = -1, /) -> bytes:
        self.seen.append(self.sink.getvalue().count(b"\n"))
        return self.pieces.pop(0) if self.pieces else b""


def test_answers_come_as_soon_as_a_line_is_complete() -> None:
    one = json.dumps(_ask("a.*", "b.$1", "a.1")).encode()
    sink = io.BytesIO()
    source = Chunks([one + b"\n", one[:5], one[5:] + b"\nno json\n" + one], sink)
    answer_stream(source, sink, NEWEST)  # type: ignore[arg-type]  # all that is used of a reader is there
    assert source.seen == [0, 0, 1, 1, 3]
    lines = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert [next(iter(line)) for line in lines] == ["subject", "subject", "error", "subject"]


def test_a_conversation_over_pipes() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "nats_bridge", "explain", "--jsonl", "--dialect", "2.10"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin as write, process.stdout as read:
        for number in range(3):
            write.write(json.dumps(_ask("a.*", "b.$1", f"a.{number}")).encode() + b"\n")
            write.flush()
            assert json.loads(read.readline()) == {"subject": f"b.{number}"}
        write.close()
        assert read.read() == b""
    assert process.wait(30) == 0
