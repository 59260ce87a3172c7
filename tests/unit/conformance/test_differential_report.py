"""The report of a run, for people and for programs."""

from tests.differential.report import text
from tests.differential.result import DifferentialResult, Disagreement

GOOD = DifferentialResult(
    version="2.15.1",
    seed=7,
    wanted=1500,
    comparisons={"create": 500, "republish": 1012},
    repeated=31,
    invisible=4,
    trials=600,
    held_back={"it would end the server": 3},
    seconds=1.234,
)


def test_a_good_run_is_a_table() -> None:
    assert text(GOOD).splitlines() == [
        "nats-server 2.15.1, seed 7: 1,512 comparisons in 600 trials, all agree (1.2 s)",
        "    1,012  republish",
        "      500  create",
        "       31  equal inputs, compared again and not counted",
        "        4  messages that no subscription could receive, not counted",
        "held back from this version: 3 trials",
        "        3  it would end the server",
    ]
    assert GOOD.is_good


def test_a_disagreement_comes_with_its_entry() -> None:
    found = Disagreement(42, "create", "decision", "accepted", "500/10052 no", "clause: x\ncases: []\n", 17)
    bad = DifferentialResult(
        "2.9.10", 1, 10, {"create": 10}, 0, 0, 10, {}, 0.5, (found, Disagreement(43, "a", "b", "c", "d"))
    )
    shown = text(bad)
    assert not bad.is_good
    assert "2 DISAGREE" in shown
    assert "trial 42, create: decision\n  server: accepted\n  engine: 500/10052 no\n" in shown
    assert "the server was asked 17 times; for the catalogue:\n\nclause: x\ncases: []\n\ntrial 43" in shown
