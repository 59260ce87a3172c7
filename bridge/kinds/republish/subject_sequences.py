"""A compact map from subject to last sequence, for millions of subjects.

Theory of operation. A dict of bytes to int costs about 150 bytes a subject. Here subjects live in buckets, each one
`bytearray` of records; a record is `CR subject LF sequence-digits`. A subject can hold neither CR nor LF (spaces it
can), so a search for `CR subject LF` finds exactly that subject's record and nothing else. Buckets are split one at a
time as the map grows (linear hashing), so that no insertion ever pauses for a rehash of everything.

Sequences are kept as decimal text because that is what arrives on the wire and what leaves on it.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["SubjectSequences"]

_RECORDS_PER_BUCKET = 24


class SubjectSequences:
    """Subject (bytes) to sequence (decimal text as bytes). About 30 bytes a subject more than the subject itself."""

    __slots__ = ("_buckets", "_count", "_level", "_split")

    def __init__(self) -> None:
        self._buckets: list[bytearray] = [bytearray()]
        self._count = 0
        self._level = 1  # how many buckets there were when the present round of splitting began: a power of two
        self._split = 0  # the next bucket to be split

    def __len__(self) -> int:
        return self._count

    def get(self, subject: bytes) -> bytes | None:
        """The sequence stored for a subject, None if there is none."""
        bucket = self._buckets[self._index(subject)]
        key = b"\r%b\n" % subject
        at = bucket.find(key)
        if at < 0:
            return None
        start = at + len(key)
        end = bucket.find(b"\r", start)
        return bytes(bucket[start:] if end < 0 else bucket[start:end])

    def set(self, subject: bytes, sequence: bytes) -> None:
        """Store a subject's sequence, replacing an older one."""
        bucket = self._buckets[self._index(subject)]
        key = b"\r%b\n" % subject
        at = bucket.find(key)
        if at >= 0:
            start = at + len(key)
            end = bucket.find(b"\r", start)
            bucket[start : len(bucket) if end < 0 else end] = sequence
            return
        bucket += key + sequence
        self._count += 1
        if self._count > len(self._buckets) * _RECORDS_PER_BUCKET:
            self._split_one()

    def subject_of(self, sequence: bytes) -> bytes | None:
        """A subject that has this sequence, None if there is none; takes as long as the map is large."""
        end = b"\n" + sequence
        inside = end + b"\r"
        for bucket in self._buckets:
            at = bucket.find(inside)
            if at < 0:
                if not bucket.endswith(end):
                    continue
                at = len(bucket) - len(end)
            return bytes(bucket[bucket.rfind(b"\r", 0, at) + 1 : at])
        return None

    def forget_below(self, sequence: int) -> None:
        """Forget every subject whose sequence is lower."""
        kept = [(subject, text) for subject, text in self.items() if int(text) >= sequence]
        self.clear()
        for subject, text in kept:
            self.set(subject, text)

    def clear(self) -> None:
        """Forget everything."""
        self._buckets = [bytearray()]
        self._count = 0
        self._level = 1
        self._split = 0

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every (subject, sequence), in no particular order; not while the map is changed."""
        for bucket in self._buckets:
            for record in bytes(bucket).split(b"\r")[1:]:
                subject, _, sequence = record.partition(b"\n")
                yield subject, sequence

    def _index(self, subject: bytes) -> int:
        digest = hash(subject)
        index = digest & (self._level - 1)
        if index < self._split:
            index = digest & (2 * self._level - 1)
        return index

    def _split_one(self) -> None:
        old = self._split
        records = bytes(self._buckets[old]).split(b"\r")[1:]
        self._buckets.append(bytearray())
        self._split += 1
        if self._split == self._level:
            self._level *= 2
            self._split = 0
        stay = bytearray()
        move = bytearray()
        for record in records:
            target = stay if self._index(record.partition(b"\n")[0]) == old else move
            target += b"\r" + record
        # Exact-size copies: a bytearray that grew step by step keeps spare capacity.
        self._buckets[old] = bytearray(bytes(stay))
        self._buckets[-1] = bytearray(bytes(move))
