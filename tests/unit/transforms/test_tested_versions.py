import pytest

from nats_transforms.dialect import FEATURES, server_dialect
from nats_transforms.tested_versions import NEWEST_PATCHES, TESTED_VERSIONS, stand_in

NEWEST = TESTED_VERSIONS[-1]


@pytest.mark.parametrize("version", TESTED_VERSIONS)
def test_the_table_reaches_its_own_versions(version: str) -> None:
    assert stand_in(version) is None
    for decorated in (f"v{version}", f"{version}-RC.1", f"{version}-dev", f"{version}+dirty"):
        assert stand_in(decorated) is None


def test_the_table_reaches_older_patches_of_its_lines() -> None:
    assert stand_in("2.9.0") is stand_in("2.10.3") is stand_in("2.15.0-RC.4") is None


@pytest.mark.parametrize("line", NEWEST_PATCHES)
@pytest.mark.parametrize("decoration", ["", "-RC.1", "-dev", "-beta.2+build.7"])
def test_a_newer_patch_is_treated_like_the_newest_of_its_line(line: tuple[int, int], decoration: str) -> None:
    newest = NEWEST_PATCHES[line]
    version = f"{line[0]}.{line[1]}.{newest + 1}{decoration}"
    assert stand_in(version) == f"{line[0]}.{line[1]}.{newest}"
    _equal(version)


@pytest.mark.parametrize(
    "version",
    ["2.16.0", "2.16.0-RC.1", "v3.0.0", "2.13.4", "2.8.4", "0.0.0-unknown", "2.15", "2.15.x", "2.15.3.1", "main", ""],
)
def test_every_other_server_is_treated_like_the_newest_of_all(version: str) -> None:
    assert stand_in(version) == NEWEST
    if version != "2.15":  # a minor line, which no server reports
        _equal(version)


def test_digits_without_end_are_not_a_version() -> None:
    assert stand_in("2.15." + "9" * 5000) == NEWEST


def _equal(version: str) -> None:
    """The engine does what the remark says."""
    here, there = server_dialect(version), server_dialect(str(stand_in(version)))
    assert [name for name in FEATURES if getattr(here, name) != getattr(there, name)] == []
