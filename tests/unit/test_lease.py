"""What a replica does with a lease, step by step; and that of several replicas never two may write at once."""

import random
from dataclasses import dataclass, field, replace

import pytest

from nats_bridge.rules.leadership.lease import KeptPosition, Lease, Look, Record, Rest, Sighting, Write
from nats_bridge.rules.leadership.timing import Timing

TIMING = Timing(10.0)
OTHER = Record("other", 7, 3, 10.0)


def on_standby(sighting: Sighting, now: float = 100.0) -> Lease:
    lease = Lease("me", TIMING)
    assert lease.step(now) == Look()
    lease.looked(sighting, now)
    return lease


def watch(lease: Lease, sighting: Sighting, since: float, until: float) -> None:
    """Look as often as the lease asks for, and find the same."""
    now = since
    while now < until:
        match lease.step(now):
            case Look():
                lease.looked(sighting, now)
            case Rest(until=moment):
                now = min(moment, until)
            case Write():
                raise AssertionError(f"a claim at {now}")


def claimed(lease: Lease, now: float) -> Write:
    step = lease.step(now)
    assert isinstance(step, Write), step
    return step


def holding(now: float = 100.0, revision: int = 5) -> Lease:
    """A lease that was taken at `now`."""
    lease = on_standby(Sighting(4, replace(OTHER, released=True)), now)
    claim = claimed(lease, now)
    lease.sent(claim, now)
    lease.stored(claim, revision)
    return lease


def test_what_was_released_is_taken_at_once() -> None:
    lease = on_standby(Sighting(4, replace(OTHER, released=True)))
    assert claimed(lease, 100.0) == Write(Record("me", 8, 1, 10.0), 4)


def test_a_position_goes_from_holder_to_holder() -> None:
    at_7, at_9 = KeptPosition("S", 7, 70), KeptPosition("S", 9, 90)
    lease = on_standby(Sighting(4, replace(OTHER, released=True, position=at_7)))
    claim = claimed(lease, 100.0)
    assert claim.record.position == at_7
    lease.sent(claim, 100.0)
    lease.stored(claim, 5)
    assert lease.kept == at_7
    lease.kept = at_9
    renewal = claimed(lease, 102.0)
    assert renewal.record.position == at_9
    lease.sent(renewal, 102.0)
    lease.stored(renewal, 6)
    lease.kept = None  # what was sent since then is unknown
    released = lease.give_back()
    assert released is not None
    assert (released.record.released, released.record.position) == (True, None)
    assert lease.kept is None


@pytest.mark.parametrize("sighting", [Sighting(4, OTHER), Sighting(0, None), Sighting(9, None)])
def test_what_does_not_change_is_taken_after_its_time(sighting: Sighting) -> None:
    lease = on_standby(sighting, 100.0)
    watch(lease, sighting, 100.0, 110.0)
    assert claimed(lease, 110.0).expected == sighting.revision


def test_the_holder_says_how_long_its_time_is() -> None:
    sighting = Sighting(4, replace(OTHER, ttl=30.0))
    lease = on_standby(sighting, 100.0)
    watch(lease, sighting, 100.0, 130.0)
    assert claimed(lease, 130.0)


def test_a_renewal_restarts_the_time() -> None:
    lease = on_standby(Sighting(4, OTHER), 100.0)
    watch(lease, Sighting(4, OTHER), 100.0, 107.0)
    watch(lease, Sighting(5, replace(OTHER, beat=4)), 108.0, 118.0)


def test_what_was_not_watched_does_not_count() -> None:
    sighting = Sighting(4, OTHER)
    lease = on_standby(sighting, 100.0)
    watch(lease, sighting, 100.0, 104.0)
    assert lease.step(130.0) == Look()
    lease.looked(sighting, 130.0)
    watch(lease, sighting, 130.0, 140.0)
    assert claimed(lease, 140.0)


def test_a_standby_reads_at_once_when_another_replica_writes() -> None:
    lease = on_standby(Sighting(4, OTHER), 100.0)
    assert isinstance(lease.step(100.5), Rest)
    lease.hinted(100.5, released=False)
    assert lease.step(100.5) == Look()


def test_a_release_that_is_not_stored_yet_is_looked_for_again_soon() -> None:
    lease = on_standby(Sighting(4, OTHER), 100.0)
    lease.hinted(100.5, released=True)
    lease.looked(Sighting(4, OTHER), 100.5)
    step = lease.step(100.5)
    assert isinstance(step, Rest)
    assert step.until - 100.5 < 0.1
    lease.looked(Sighting(5, replace(OTHER, released=True)), 100.52)
    assert claimed(lease, 100.52).expected == 5


def test_a_standby_knows_a_leader_by_its_renewals() -> None:
    """The record of a dead one looks the same, and one that was released or deleted has none."""
    lease = on_standby(Sighting(4, OTHER), 100.0)
    assert not lease.is_led(100.0)
    lease.looked(Sighting(5, replace(OTHER, beat=4)), 102.0)
    assert lease.is_led(102.0)
    lease.looked(Sighting(5, replace(OTHER, beat=4)), 106.0)
    assert lease.is_led(106.9)
    assert not lease.is_led(107.0)
    lease.looked(Sighting(6, replace(OTHER, beat=5)), 107.5)
    assert lease.is_led(107.5)
    lease.looked(Sighting(7, replace(OTHER, released=True)), 108.0)
    assert not lease.is_led(108.0)
    lease.looked(Sighting(8, None), 109.0)
    assert not lease.is_led(109.0)


def test_what_a_standby_could_not_read_for_long_has_no_leader() -> None:
    lease = on_standby(Sighting(4, OTHER), 100.0)
    lease.looked(Sighting(5, OTHER), 102.0)
    lease.looked(Sighting(5, OTHER), 110.0)
    assert not lease.is_led(110.0)
    lease.looked(Sighting(6, OTHER), 112.0)
    assert lease.is_led(112.0)


def test_who_writes_first_is_a_leader() -> None:
    lease = on_standby(Sighting(4, replace(OTHER, released=True)), 100.0)
    claim = claimed(lease, 100.0)
    lease.sent(claim, 100.0)
    lease.conflict(claim)
    lease.looked(Sighting(5, OTHER), 100.1)
    assert lease.is_led(100.1)
    assert holding(100.0).is_led(105.9)
    assert not holding(100.0).is_led(106.0)


def test_a_holder_stops_writing_well_before_others_take_over() -> None:
    lease = holding(100.0)
    assert lease.is_open(100.0)
    assert lease.is_open(105.9)
    assert not lease.is_open(106.0)
    assert TIMING.open_for + TIMING.unsent_for < TIMING.ttl


def test_a_holder_renews_over_its_own_revision() -> None:
    lease = holding(100.0, revision=5)
    assert lease.step(100.0) == Rest(102.0)
    renewal = claimed(lease, 102.0)
    assert renewal == Write(Record("me", 8, 2, 10.0), 5)
    lease.sent(renewal, 102.0)
    lease.stored(renewal, 6)
    assert lease.deadline == 108.0
    assert claimed(lease, 104.0).expected == 6


def test_an_answer_that_comes_late_counts_from_the_sending() -> None:
    lease = holding(100.0)
    renewal = claimed(lease, 102.0)
    lease.sent(renewal, 102.0)
    lease.stored(renewal, 6)  # whenever that was
    assert not lease.is_open(108.0)


def test_after_a_pause_the_holder_looks_before_it_renews() -> None:
    lease = holding(100.0, revision=5)
    assert lease.step(150.0) == Look()
    lease.looked(Sighting(5, Record("me", 8, 1, 10.0)), 150.1)
    assert not lease.is_open(150.1)
    renewal = claimed(lease, 150.1)
    lease.sent(renewal, 150.1)
    lease.stored(renewal, 6)
    assert lease.is_open(150.2)
    assert lease.term == 8


@pytest.mark.parametrize("found", [Sighting(6, Record("other", 9, 1, 10.0)), Sighting(0, None)])
def test_after_a_pause_another_record_ends_the_term(found: Sighting) -> None:
    lease = holding(100.0)
    assert lease.step(150.0) == Look()
    lease.looked(found, 150.1)
    assert not lease.held
    assert not lease.is_open(101.0)


def test_a_renewal_without_an_answer_that_was_stored_is_known_again() -> None:
    lease = holding(100.0, revision=5)
    renewal = claimed(lease, 102.0)
    lease.sent(renewal, 102.0)
    lease.unanswered(103.0)
    lease.looked(Sighting(6, renewal.record), 104.0)
    assert lease.deadline == 108.0
    assert claimed(lease, 104.0).expected == 6


def test_a_renewal_without_an_answer_that_was_not_stored_is_sent_again() -> None:
    lease = holding(100.0, revision=5)
    renewal = claimed(lease, 102.0)
    lease.sent(renewal, 102.0)
    lease.unanswered(103.0)
    lease.looked(Sighting(5, Record("me", 8, 1, 10.0)), 103.9)
    again = claimed(lease, 104.0)
    assert (again.expected, again.record.beat) == (5, 3)
    lease.sent(again, 104.0)
    lease.conflict(again)  # the first one came in after all
    assert lease.step(104.1) == Look()
    lease.looked(Sighting(6, renewal.record), 104.2)
    assert lease.deadline == 108.0


def test_a_deleted_record_is_written_again_before_another_can_hold_it() -> None:
    lease = holding(100.0, revision=5)
    renewal = claimed(lease, 102.0)
    lease.sent(renewal, 102.0)
    lease.conflict(renewal)
    lease.looked(Sighting(0, None), 102.1)
    assert lease.is_open(102.1)
    assert claimed(lease, 102.1).expected == 0


def test_a_claim_without_an_answer_is_known_again() -> None:
    lease = on_standby(Sighting(4, replace(OTHER, released=True)), 100.0)
    claim = claimed(lease, 100.0)
    lease.sent(claim, 100.0)
    lease.unanswered(101.0)
    assert isinstance(lease.step(101.0), Rest)
    assert lease.step(102.0) == Look()
    lease.looked(Sighting(5, claim.record), 102.0)
    assert lease.held
    assert lease.deadline == 106.0


def test_a_claim_that_another_replica_won_restarts_the_watch() -> None:
    lease = on_standby(Sighting(4, replace(OTHER, released=True)), 100.0)
    claim = claimed(lease, 100.0)
    lease.sent(claim, 100.0)
    lease.conflict(claim)
    assert lease.step(100.1) == Look()
    rival = Sighting(5, Record("rival", 8, 1, 10.0))
    lease.looked(rival, 100.1)
    assert lease.holder == "rival"
    watch(lease, rival, 100.1, 110.1)


def test_giving_back_says_so_over_the_own_revision() -> None:
    lease = holding(100.0, revision=5)
    assert lease.give_back() == Write(Record("me", 8, 2, 10.0, released=True), 5)
    assert not lease.held
    assert not lease.is_open(100.1)


def test_what_is_in_doubt_is_not_released() -> None:
    lease = holding(100.0)
    renewal = claimed(lease, 102.0)
    lease.sent(renewal, 102.0)
    lease.unanswered(103.0)
    assert lease.give_back() is None
    assert not lease.held


# -- several replicas and a bucket, at random ------------------------------------------------------------------------


@dataclass
class _Bucket:
    """The bucket of a rule's lease, which answers in order."""

    revision: int = 0
    record: Record | None = None

    def write(self, write: Write) -> int | None:
        if write.expected != (self.revision if self.record is not None else 0):
            return None
        self.revision += 1
        self.record = write.record
        return self.revision

    def read(self) -> Sighting:
        return Sighting(self.revision if self.record is not None else 0, self.record)


@dataclass
class _Replica:
    """One replica, whose writes may arrive late or never, and which may be stopped for any time at any moment."""

    lease: Lease
    chance: random.Random
    late: list[tuple[float, Write]] = field(default_factory=list)
    sleeps_until: float = 0.0
    write: Write | None = None

    def act(self, now: float, bucket: _Bucket) -> None:
        for moment, write in [entry for entry in self.late if entry[0] <= now]:
            self.late.remove((moment, write))
            bucket.write(write)
        if now < self.sleeps_until:
            return
        if self.chance.random() < 0.01:
            self.sleeps_until = now + self.chance.choice((1.0, 5.0, 9.0, 14.0, 40.0))
            return
        lease = self.lease
        if self.write is not None:
            # The result of a write is reported a while after it was sent, perhaps after a pause.
            write, self.write = self.write, None
            self._arrive(write, now, bucket)
            return
        if lease.held and self.chance.random() < 0.002:
            if (release := lease.give_back()) is not None:
                bucket.write(release)
            return
        match lease.step(now):
            case Look():
                if self.chance.random() < 0.1:
                    lease.unanswered(now)
                else:
                    lease.looked(bucket.read(), now)
            case Write() as write:
                lease.sent(write, now)
                self.write = write
            case Rest():
                pass

    def _arrive(self, write: Write, now: float, bucket: _Bucket) -> None:
        fate = self.chance.random()
        if fate < 0.05:
            lease_end = now + self.chance.choice((0.5, 4.0, 20.0))
            self.late.append((lease_end, write))
            self.lease.unanswered(now)
        elif fate < 0.1:
            bucket.write(write)
            self.lease.unanswered(now)
        elif (revision := bucket.write(write)) is None:
            self.lease.conflict(write)
        else:
            self.lease.stored(write, revision)


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in range(3, 15))]
)
def test_never_two_may_write_at_once(seed: int) -> None:
    chance = random.Random(seed)
    bucket = _Bucket()
    replicas = [_Replica(Lease(name, TIMING), chance) for name in ("a", "b", "c")]
    now, led, holders = 1000.0, 0, set()
    for _ in range(20_000):
        now += chance.choice((0.01, 0.05, 0.2))
        for replica in chance.sample(replicas, 3):
            replica.act(now, bucket)
        if chance.random() < 0.0002:
            bucket.record = None  # a client deletes it
            bucket.revision = chance.choice((0, bucket.revision))
        # A stopped process does not write, but what it asked just before it was stopped still holds.
        may_write = [replica for replica in replicas if replica.lease.is_open(now)]
        assert len(may_write) <= 1
        led += len(may_write)
        holders |= {replica.lease.holder for replica in may_write}
    assert led > 5000
    assert len(holders) == 3
