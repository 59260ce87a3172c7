"""A compact map from subject to last sequence, for millions of subjects.

Theory of operation. A dict of bytes to int costs about 150 bytes for each subject. Here subjects are in buckets, each a
`bytes` object of records; a record is `CR subject LF sequence-digits`. A subject can contain spaces but neither CR nor
LF, so a search for `CR subject LF` finds exactly that subject's record and nothing else. A search takes as long as its
bucket, so buckets hold few records. As the map grows, buckets are split one at a time, each in four (linear hashing):
no insertion ever pauses for a rehash of everything, and a record moves once while the map grows fourfold.

Sequences are kept as decimal text because they arrive and leave in that form.
"""

from collections.abc import Iterator

_RECORDS_PER_BUCKET = 16  # size at which the next round of splitting begins; a quarter of it after the round
_INSERTIONS_PER_SPLIT = 4


class SubjectSequences:
    """Subject (bytes) to sequence (decimal text as bytes). About 25 bytes a subject more than the subject itself."""

    __slots__ = ("_buckets", "_count", "_level", "_room", "_split")

    def __init__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return self._count

    def get(self, subject: bytes) -> bytes | None:
        """Return the sequence stored for a subject, None if there is none."""
        _, found, rest = self._buckets[self._index(subject)].partition(b"\r%b\n" % subject)
        return rest.partition(b"\r")[0] if found else None

    def set(self, subject: bytes, sequence: bytes) -> None:
        """Store a subject's sequence, replacing an older one."""
        self.exchange(subject, sequence)

    def exchange(self, subject: bytes, sequence: bytes) -> bytes | None:
        """Store a subject's sequence. Return the previous one; None if there was none."""
        digest = hash(subject)
        index = digest & (self._level - 1)
        if index < self._split:
            index = digest & (4 * self._level - 1)
        bucket = self._buckets[index]
        key = b"\r%b\n" % subject
        before, found, rest = bucket.partition(key)
        if found:
            last, mark, behind = rest.partition(b"\r")
            self._buckets[index] = b"%b%b%b%b%b" % (before, key, sequence, mark, behind)
            return last
        self._buckets[index] = bucket + key + sequence
        self._count += 1
        if self._count > self._room:
            self._split_one()
        return None

    def subject_of(self, sequence: bytes) -> bytes | None:
        """Return a subject that has this sequence; None if none has.

        The time is proportional to the size of the map.
        """
        end = b"\n" + sequence
        inside = end + b"\r"
        for bucket in self._buckets:
            at = bucket.find(inside)
            if at < 0:
                if not bucket.endswith(end):
                    continue
                at = len(bucket) - len(end)
            return bucket[bucket.rfind(b"\r", 0, at) + 1 : at]
        return None

    def forget_below(self, sequence: int) -> None:
        """Forget every subject whose sequence is lower."""
        kept = [(subject, text) for subject, text in self.items() if int(text) >= sequence]
        self.clear()
        for subject, text in kept:
            self.set(subject, text)

    def clear(self) -> None:
        """Forget everything."""
        self._buckets: list[bytes] = [b""]
        self._count = 0
        self._level = 1  # the number of buckets at the start of the present round of splitting: a power of four
        self._split = 0  # the next bucket to be split
        self._room = _RECORDS_PER_BUCKET  # the number of subjects until then

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (subject, sequence), in no particular order. The map must not change meanwhile."""
        for bucket in self._buckets:
            for record in bucket.split(b"\r")[1:]:
                subject, _, sequence = record.partition(b"\n")
                yield subject, sequence

    def _index(self, subject: bytes) -> int:
        digest = hash(subject)
        index = digest & (self._level - 1)
        return index if index >= self._split else digest & (4 * self._level - 1)

    def _split_one(self) -> None:
        level, old = self._level, self._split
        if not old:
            self._buckets += [b""] * (3 * level)
        mask = 4 * level - 1
        parts: dict[int, list[bytes]] = {old + quarter * level: [b""] for quarter in range(4)}
        for record in self._buckets[old].split(b"\r")[1:]:
            parts[hash(record.partition(b"\n")[0]) & mask].append(record)
        for index, records in parts.items():
            self._buckets[index] = b"\r".join(records)
        self._split += 1
        self._room = self._count + _INSERTIONS_PER_SPLIT
        if self._split == level:
            self._level, self._split = 4 * level, 0
            self._room = max(self._room, _RECORDS_PER_BUCKET * self._level)
