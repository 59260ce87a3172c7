"""Libraries behind the JSON-lines protocol: the reference adapter, a small library of transforms, and bad ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.errors import SubjectError
from nats_conformance.implementations.library import LibrarySubject
from nats_conformance.outcome import Outcome
from nats_conformance.subject import CannotPlay
from tests.live.tiers import by_turns, with_all
from tests.unit.conformance.playing import opened, outcomes

ADAPTER = (sys.executable, str(Path(__file__).parents[3] / "docs" / "reference_adapter.py"))

# Knows literals, $n and > alone, and refuses everything else; wrong at index 0, which it does not know of.
SMALL = """
import json, sys

def matched(source, subject):
    found = []
    have = subject.split(".")
    for at, token in enumerate(source):
        if token == ">":
            return (found, have[at:]) if len(have) > at else None
        if at >= len(have) or token not in ("*", have[at]):
            return None
        if token == "*":
            found.append(have[at])
    return (found, []) if len(have) == len(source) else None

def result(source, destination, subject):
    found = matched(source, subject)
    if found is None:
        return None
    made = []
    for token in destination:
        if token == ">":
            made += found[1]
        elif token[:1] == "$" and token[1:].isdigit():
            made.append(found[0][int(token[1:]) - 1])
        else:
            made.append(token)
    return ".".join(made)

for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request["id"]}
    if request["op"] == "hello":
        answer |= {"protocol": 1, "name": "small", "dialects": ["2.15"], "capabilities": ["transform", "magic"]}
    if request["op"] == "transform":
        texts = [request["src"], request["dest"], *request["subjects"]]
        if not all(isinstance(each, str) for each in texts):
            answer["unsupported"] = "only texts"
        else:
            source, destination = request["src"].split("."), request["dest"].split(".")
            if any("{{" in token for token in destination):
                answer["unsupported"] = "no functions yet"
            elif any(token[1:].isdigit() and int(token[1:]) > source.count("*") for token in destination):
                answer["refused"] = {}
            else:
                answer["results"] = [result(source, destination, subject) for subject in request["subjects"]]
    print(json.dumps(answer), flush=True)
    if request["op"] == "bye":
        break
"""


def library(
    answers: str, hello: str = '{"protocol": 1, "name": "bad", "dialects": ["2.15"], "capabilities": ["transform"]}'
) -> str:
    """A library that says hello rightly, and whatever ``answers`` prints to anything else."""
    return f"""
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "hello":
        print(json.dumps({{"id": request["id"], **json.loads({hello!r})}}), flush=True)
    elif request["op"] == "bye":
        print(json.dumps({{"id": request["id"]}}), flush=True)
        break
    else:
        {answers}
"""


def of(script: str, version: str = "2.15.1", **limits: float) -> LibrarySubject:
    return LibrarySubject((sys.executable, "-I", "-S", "-c", script), version, **limits)


def case(case_id: str) -> Case:
    (found,) = [each for each in read_catalogue() if each.id == case_id]
    return found


def cases_of(file: str) -> list[Case]:
    return [each for each in read_catalogue() if each.file is not None and each.file.name == file]


TRANSFORM = "adr30/tail/one-token/1"


@pytest.mark.parametrize("version", ["2.9.10", pytest.param("2.10.27", marks=pytest.mark.exhaustive), "2.15.1"])
@pytest.mark.parametrize("each", [8, pytest.param(1, marks=pytest.mark.exhaustive)])
async def test_the_reference_adapter_passes_the_catalogue(version: str, each: int) -> None:
    """That the engine itself passes is shown in `test_engine_subject`: here is the way through the protocol."""
    async with opened(LibrarySubject(ADAPTER, version)) as subject:
        assert subject.identity.label.startswith("nats-bridge transforms ")
        assert subject.identity.label.endswith(f" {version}")
        found, wrong = await outcomes(subject, read_catalogue()[::each])
    assert wrong == []
    assert found[Outcome.PASS] + found[Outcome.DIFFERENCE] > 40
    assert found[Outcome.SKIPPED] == 0


@pytest.mark.parametrize("offer", ["transform", "republish", "sourcing,stream_config"])
async def test_an_adapter_that_offers_less_is_asked_less(offer: str) -> None:
    cases = cases_of("engine.yaml")
    async with opened(LibrarySubject((*ADAPTER, "--offer", offer), "2.15.1")) as subject:
        assert subject.capabilities == frozenset(offer.split(","))
        found, wrong = await outcomes(subject, cases)
    assert wrong == []
    assert found[Outcome.PASS] > 15
    if offer != "sourcing,stream_config":  # every case has a configuration
        assert found[Outcome.INAPPLICABLE] > 10


@by_turns("version, offer", ["2.9.10", *with_all("2.10.27"), "2.15.1"], ["transform", "bare_transform"])
async def test_a_library_of_transforms_alone_can_pass(offer: str, version: str) -> None:
    cases = [each for each in read_catalogue() if each.transform is not None][::4]
    cases.append(case("adr30/places/destination/3"))
    async with opened(LibrarySubject((*ADAPTER, "--offer", offer), version)) as subject:
        found, wrong = await outcomes(subject, cases)
        assert wrong == []
        assert found[Outcome.PASS] + found[Outcome.DIFFERENCE] > 50
        with pytest.raises(CannotPlay, match="the stream's subjects decide"):
            await subject.play(case("adr30/places/destination/4"))


async def test_a_place_that_decides_is_not_asked_of_a_bare_transform() -> None:
    async with opened(LibrarySubject((*ADAPTER, "--offer", "bare_transform"), "2.15.1")) as subject:
        with pytest.raises(CannotPlay, match=r"the place decides \(ingress\)") as answer:
            await subject.play(case("adr30/invalid-results/ingress/5"))
        assert not answer.value.is_skip


async def test_a_library_of_transforms_alone_is_judged_on_transform_cases() -> None:
    cases = cases_of("engine.yaml")
    async with opened(of(SMALL)) as subject:
        assert subject.identity.label == "small 2.15.1"
        assert subject.capabilities == {"transform"}
        found, wrong = await outcomes(subject, cases)
        assert wrong == []
        assert found[Outcome.PASS] > 2
        assert found[Outcome.SKIPPED] > 5  # no functions yet
        with pytest.raises(CannotPlay, match="nothing that the library offers") as answer:
            await subject.play(case("adr28/rules/cycle/1"))
        assert not answer.value.is_skip
        with pytest.raises(CannotPlay, match="no functions yet") as skip:
            await subject.play(case("adr30/hash/tokens/1"))
        assert skip.value.is_skip


async def test_a_wrong_answer_of_a_library_is_a_failure() -> None:
    wrong_library = SMALL.replace("if len(have) > at else None", "")
    async with opened(of(wrong_library)) as subject:
        found, wrong = await outcomes(subject, [case(TRANSFORM)])
    assert found == {Outcome.FAIL: 1}
    assert "received[2]" in wrong[0]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("print('what a lovely day', flush=True)", "no JSON: 'what a lovely day'"),
        ("print('[1]', flush=True)", r"something else: '\[1\]'"),
        ("print(json.dumps({'id': 99, 'results': []}), flush=True)", r'has id 2, with something else: .*"id": 99'),
        ("sys.stderr.write('I am tired\\n'); sys.exit(3)", "exit code 3 instead of answering 'transform'.*I am tired"),
        ("print('{\"id\": 2', end='', flush=True); sys.exit(0)", r"exit code 0 .*, after '{\"id\": 2'"),
    ],
)
async def test_what_is_no_answer_is_an_error_that_quotes_it(answers: str, said: str) -> None:
    async with opened(of(library(answers))) as subject:
        with pytest.raises(SubjectError, match=said):
            await subject.play(case(TRANSFORM))


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"error": "out of cheese"}, "answered 'transform' with an error: out of cheese"),
        ({}, "cannot be read .KeyError"),
        ({"results": ["one"]}, "4 subjects have 1 results"),
        ({"results": [1, None, None, None]}, "bytes are a text"),
        ({"results": [{"base64": "!"}, None, None, None]}, "cannot be read"),
        ({"refused": "no"}, "refused is an object"),
    ],
)
async def test_an_unreadable_answer_is_an_error_and_the_library_continues(
    members: dict[str, object], said: str
) -> None:
    answer = f"print(json.dumps({{'id': request['id'], **{members!r}}}), flush=True)"
    async with opened(of(library(answer))) as subject:
        for _ in range(5):
            with pytest.raises(SubjectError, match=said):
                await subject.play(case(TRANSFORM))


async def test_a_configuration_that_makes_no_sense_is_an_error() -> None:
    hello = {"protocol": 1, "name": "bad", "dialects": ["2.15"], "capabilities": ["stream_config"]}
    answer = "print(json.dumps({'id': request['id'], 'config': {'name': 'S', 'subjects': 5}}), flush=True)"
    async with opened(of(library(answer, json.dumps(hello)))) as subject:
        with pytest.raises(SubjectError, match="accepted cannot be worked with: TypeError"):
            await subject.play(case("adr28/selection/source/1"))


async def test_a_library_that_hangs_is_an_error() -> None:
    async with opened(of(library("time.sleep(3600)"), limit=0.2)) as subject:
        with pytest.raises(SubjectError, match=r"did not answer 'transform' within 0\.2 s"):
            await subject.play(case(TRANSFORM))


async def test_a_library_that_fails_is_restarted_but_not_endlessly() -> None:
    async with opened(of(library("sys.exit(1)"))) as subject:
        for _ in range(3):
            with pytest.raises(SubjectError, match="ended with exit code 1"):
                await subject.play(case(TRANSFORM))
        with pytest.raises(SubjectError, match="3 times in a row"):
            await subject.play(case(TRANSFORM))


async def test_a_library_that_fails_once_plays_the_next_case(tmp_path: Path) -> None:
    marker = tmp_path / "was here"
    script = SMALL.replace(
        'if request["op"] == "transform":',
        f"import pathlib\n    marker = pathlib.Path({str(marker)!r})\n"
        '    if request["op"] == "transform" and not marker.exists():\n'
        "        marker.touch()\n        sys.exit(1)\n"
        '    if request["op"] == "transform":',
    )
    async with opened(of(script)) as subject:
        with pytest.raises(SubjectError, match="ended with exit code 1"):
            await subject.play(case(TRANSFORM))
        found, wrong = await outcomes(subject, [case(TRANSFORM)])
    assert (found, wrong) == ({Outcome.PASS: 1}, [])


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        ({"protocol": 2, "name": "x", "dialects": ["2.15"], "capabilities": []}, "version 2 of the protocol"),
        ({"protocol": 1, "name": "x", "dialects": ["2.15"], "capabilities": []}, "offers none of transform"),
        ({"protocol": 1, "name": "x", "dialects": ["2.9", "2.15.2"], "capabilities": ["transform"]}, "it knows 2.9, 2"),
        ({"protocol": 1, "dialects": ["2.15"], "capabilities": ["transform"]}, "without name"),
        ({"protocol": 1, "name": "x", "dialects": "2.15", "capabilities": ["transform"]}, "without name"),
        ({}, "version None of the protocol"),
    ],
)
async def test_a_hello_that_does_not_fit_is_an_error(hello: dict[str, object], said: str) -> None:
    with pytest.raises(SubjectError, match=said):
        await of(library("pass", json.dumps(hello))).open()


async def test_a_command_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(SubjectError, match="cannot be started"):
        await LibrarySubject(("/nonexistent/library",), "2.15.1").open()


async def test_a_command_that_is_no_library_is_an_error() -> None:
    with pytest.raises(SubjectError, match="ended with exit code 0 instead of answering 'hello'"):
        await of("pass").open()


async def test_a_line_without_an_end_is_an_error() -> None:
    endless = "print('x' * 17 * 2**20, flush=True)"
    async with opened(of(library(endless))) as subject:
        with pytest.raises(SubjectError, match="cannot be talked to at 'transform'"):
            await subject.play(case(TRANSFORM))


def test_the_adapter_says_what_it_does_not_understand() -> None:
    requests = [
        {"id": 1, "op": "dance"},
        {"id": 2, "op": "transform", "dialect": "3.1"},
        {"id": 3, "op": "transform", "dialect": "2.15.1", "place": "moon", "src": "a", "dest": "b", "subjects": []},
        {"id": 4, "op": "bye"},
        {"id": 5, "op": "hello"},
    ]
    lines = "".join(json.dumps(each) + "\n" for each in requests)
    done = subprocess.run(ADAPTER, input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in answers] == [1, 2, 3, 4]
    assert answers[0]["error"] == "no such operation: 'dance'"
    assert "unknown dialect '3.1'" in answers[1]["error"]
    assert "moon" in answers[2]["error"]
    assert answers[3] == {"id": 4}


def test_the_adapter_says_how_it_is_called() -> None:
    done = subprocess.run((*ADAPTER, "--offer", "everything"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr == "usage: reference_adapter [--offer transform,bare_transform,stream_config,republish,sourcing]\n"
    )


def test_the_examples_of_the_documentation_are_what_the_adapter_answers() -> None:
    text = (Path(__file__).parents[3] / "docs" / "conformance-protocol.md").read_text("utf-8")
    shown = [block for block in text.split("```")[1::2] if block.startswith("\n→") and "…" not in block]
    pairs = [[json.loads(part) for part in block.replace("→", "").split("←")] for block in shown]
    requests, answers = zip(*(pair for pair in pairs if pair[0]["op"] != "hello"), strict=True)
    assert len(requests) == 4
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(ADAPTER, input=lines, capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == list(answers)


async def test_random_numbers_do_not_decide_whether_a_case_applies() -> None:
    """Each evaluation draws other numbers, so two of them must not be compared by their digits."""
    cases = [each for each in read_catalogue() if each.id.startswith("adr30/random/range/")]
    found = set()
    for _ in range(3):
        async with opened(LibrarySubject((*ADAPTER, "--offer", "bare_transform"), "2.15.1")) as subject:
            counted, wrong = await outcomes(subject, cases)
        assert wrong == []
        found.add((counted[Outcome.PASS], counted[Outcome.INAPPLICABLE]))
    assert len(found) == 1
    assert found.pop()[0] > 0
