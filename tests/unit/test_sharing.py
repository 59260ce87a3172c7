"""How many rules a replica hands over, when it leaves a free lease to others; and that replicas come to rest."""

import random

import pytest

from nats_bridge.rules.leadership.lease import Lease, Look, Record, Rest, Sighting, Write
from nats_bridge.rules.leadership.sharing import Share
from nats_bridge.rules.leadership.timing import Timing

SILENT = 2.0


def share(me: str = "m", **others: int) -> Share:
    made = Share(me, SILENT)
    for name, leads in others.items():
        made.receive(name, leads, 0.0)
    return made


def test_a_single_replica_hands_nothing_over_and_does_not_wait() -> None:
    assert share().surplus(6, 6, 0.0) == 0
    assert not share().leaves_to_others(6, 6, 0.0)


@pytest.mark.parametrize(
    ("leads", "others", "surplus"),
    [
        (6, {"a": 0}, 3),
        (6, {"a": 0, "b": 0}, 4),
        (3, {"a": 3}, 0),
        (4, {"a": 3}, 0),  # of 7: nothing is more even
        (4, {"a": 4, "z": 2}, 0),  # "a" does it: of two that lead as many, the first by name
        (4, {"n": 4, "z": 2}, 1),
        (0, {"a": 6}, 0),
    ],
)
def test_what_is_above_the_share_goes(leads: int, others: dict[str, int], surplus: int) -> None:
    rules = leads + sum(others.values())
    assert share(**others).surplus(leads, rules, 1.0) == surplus


def test_who_leads_its_share_leaves_a_free_lease_to_others() -> None:
    assert share(a=0).leaves_to_others(3, 6, 1.0)
    assert not share(a=0).leaves_to_others(2, 6, 1.0)
    assert not share(a=3).leaves_to_others(3, 9, 1.0)  # three of a third replica's are free


def test_who_is_silent_or_stops_counts_no_more() -> None:
    silent = share(a=0)
    assert silent.surplus(6, 6, SILENT - 0.1) == 3
    assert silent.surplus(6, 6, SILENT) == 0
    stopped = share(a=0)
    stopped.receive("a", None, 1.0)
    assert stopped.surplus(6, 6, 1.0) == 0


def test_its_own_announcement_is_not_another_replica() -> None:
    mine = share("m", m=6)
    assert mine.surplus(6, 6, 0.0) == 0


def test_replicas_come_to_rest_evenly() -> None:
    for seed in range(200):
        come_to_rest_evenly(seed)


def come_to_rest_evenly(seed: int) -> None:
    """Announcements are a step old, and what is handed over goes to any replica that does not leave it to others."""
    chance = random.Random(seed)
    names = [f"r{number}" for number in range(chance.randint(1, 6))]
    rules = chance.randint(0, 40)
    leads = dict.fromkeys(names, 0)
    leads[chance.choice(names)] = rules
    shares = {name: Share(name, SILENT) for name in names}
    for step in range(60):
        now, free = step * 1.0, 0
        announced = dict(leads)
        for name in chance.sample(names, len(names)):
            given = shares[name].surplus(leads[name], rules, now)
            leads[name] -= given
            free += given
        for mine in shares.values():
            for name, led in announced.items():
                mine.receive(name, led, now)
        for _ in range(free):
            takers = [n for n in names if not shares[n].leaves_to_others(leads[n], rules, now)] or names
            leads[chance.choice(takers)] += 1
    assert sum(leads.values()) == rules, seed
    assert max(leads.values()) - min(leads.values()) <= 1, (seed, leads)
    assert all(shares[name].surplus(leads[name], rules, 59.5) == 0 for name in names)


def first_write(sighting: Sighting, restraint: float) -> float:
    """When a replica that looks as often as its lease asks for takes the lease."""
    lease = Lease("me", Timing(10.0))
    lease.restraint = restraint
    now = 100.0
    while True:
        match lease.step(now):
            case Look():
                lease.looked(sighting, now)
            case Rest(until=moment):
                now = moment
            case Write():
                return now - 100.0


@pytest.mark.parametrize(
    ("sighting", "free"),
    [
        (Sighting(4, Record("other", 7, 3, 10.0, released=True)), 0.0),
        (Sighting(4, Record("other", 7, 3, 10.0)), 10.0),
        (Sighting(0, None), 10.0),
    ],
)
def test_a_restrained_replica_takes_a_free_lease_later(sighting: Sighting, free: float) -> None:
    assert first_write(sighting, 0.0) == pytest.approx(free)
    assert first_write(sighting, 7.0) == pytest.approx(free + 7.0)
