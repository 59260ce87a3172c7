"""The dialect's flags on copying that stalls agree with the cases, which real servers of each version have passed."""

import pytest

from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.native_servers.versions import numbers
from nats_transforms.dialect import dialect
from nats_transforms.tested_versions import TESTED_VERSIONS

BOUNDARIES = ("2.10.13", "2.10.14", "2.11.0", "2.11.17", "2.12.5", "2.12.6", "2.14.0")


@pytest.mark.parametrize(
    ("flag", "case"),
    [
        ("sourcing_strips_expectations", "adr36/stall/expectation-source/1"),
        ("mirroring_strips_expectations", "adr36/stall/expectation-mirror/1"),
        ("sourcing_takes_refused_rollups", "adr36/stall/rollup-source/1"),
        ("sourcing_takes_refused_rollups", "adr36/stall/rollup-mirror/1"),
        ("copies_skip_duplicates", "adr36/duplicates/repeated-id-source/1"),
    ],
)
def test_a_flag_says_what_its_case_expects(flag: str, case: str) -> None:
    (found,) = [each for each in read_catalogue() if each.id == case]
    for version in sorted({*TESTED_VERSIONS, *BOUNDARIES}):
        facts = found.expected(numbers(version)).facts
        assert facts is not None
        assert getattr(dialect(version), flag) is not facts["stalled"], version
