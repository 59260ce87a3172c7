"""Random functions, judged by range and distribution.

Theory of operation: ``random(n)`` is drawn `DRAWS` times and the values are counted in up to `BUCKETS` equal buckets.
By Bernstein's inequality, a bucket of probability p holds a number of N draws that is farther than

    t = L/3 + sqrt((L/3)² + 2·N·p·(1-p)·L),   L = ln(2·buckets / α)

from N·p with a probability below α/buckets, if the draws are uniform and independent. So a whole judgement is a
false alarm with a probability below α = 10⁻¹², one of a thousand of them with one below 10⁻⁹. A value outside the
range is never right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from random import Random

DRAWS = 2000
BUCKETS = 16
FALSE_ALARM = 1e-12
_LIMITS = (2, 3, 7, 10, 100, 1000, 2**31 - 1)


def drawn_limits(seed: int) -> tuple[int, ...]:
    """The arguments of ``random`` that a run judges: zero and negative ones among them."""
    random = Random(f"differential/{seed}/random")
    return (
        0,
        1,
        -1,
        random.choice(_LIMITS),
        -random.choice(_LIMITS),
        random.randrange(2, 50),
        random.randrange(2, 10**6),
    )


def verdict(limit: int, values: Sequence[bytes]) -> str:
    """What is wrong with the values that ``random(limit)`` gave; empty when nothing is."""
    upper = max(abs(limit), 1)
    strange = [value for value in values if not value.isdigit() or int(value) >= upper or value != b"%d" % int(value)]
    if strange:
        return f"{strange[0]!r} is not within 0..{upper - 1}"
    buckets = min(upper, BUCKETS)
    counted = Counter(int(value) * buckets // upper for value in values)
    logarithm = math.log(2 * buckets / FALSE_ALARM)
    for bucket in range(buckets):
        # The whole numbers v with v·buckets // upper == bucket.
        low, high = -(-bucket * upper // buckets), -(-(bucket + 1) * upper // buckets)
        share = (high - low) / upper
        variance = len(values) * share * (1 - share)
        allowed = logarithm / 3 + math.sqrt((logarithm / 3) ** 2 + 2 * variance * logarithm)
        expected = len(values) * share
        if abs(counted[bucket] - expected) > allowed:
            came = f"{low}..{high - 1} came {counted[bucket]} times of {len(values)}"
            return f"{came}, expected {expected:.0f} ± {allowed:.0f}"
    return ""
