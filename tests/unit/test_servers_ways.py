"""What can be shown without a network of each way of getting a server, and commands with a time limit."""

import sys
from pathlib import Path

import pytest

from nats_conformance.native_servers import debian, processes
from nats_conformance.native_servers.errors import WayFailedError
from nats_conformance.native_servers.processes import run


def ignore(_: str) -> None:
    return


@pytest.fixture(name="sources")
def _sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the address, release and component of the sources that `apt-get indextargets` names."""
    (tmp_path / "apt-get").write_text(f"#!/bin/sh\n/bin/cat '{tmp_path}/sources'\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "sources"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (
            "http://mirror.example/debian-security/ bookworm-security main\n"
            "http://mirror.example/debian/ bookworm-updates main\n"
            "http://mirror.example/debian/ bookworm main\n",
            "http://mirror.example/debian/",
        ),
        ("http://old.example/debian/ bullseye main\n", "http://old.example/debian/"),
        ("http://x.example/linux/debian/ trixie stable\nhttps://b.example/d/ trixie main\n", "https://b.example/d/"),
        ("https://x.example/deb/ stable main\nhttp://b.example/debian/ stable main\n", "http://b.example/debian/"),
        ("https://x.example/ bookworm main\nhttp://b.example/debian/ bookworm main\n", "http://b.example/debian/"),
    ],
)
def test_the_mirror_is_the_machines_own(sources: Path, text: str, address: str) -> None:
    sources.write_text(text)
    assert debian.mirror(ignore) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://x.example/debian-security/ bookworm-security main\n",
        "http://x.example/ nodistro main\n",
        "http://archive.example/ubuntu/ noble main\n",
        "https://x.example/deb/ stable main\n",
    ],
)
def test_foreign_archives_are_no_debian_mirror(sources: Path, text: str) -> None:
    sources.write_text(text)
    with pytest.raises(WayFailedError, match="name no Debian archive"):
        debian.mirror(ignore)


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("2.10.27", "2.10.27-1+b2"),
        ("2.15.1", "1:2.15.1-1"),
        ("2.9.1", None),
        ("2.9.10", "2.9.10+ds-1"),
        ("2.9", None),
    ],
)
def test_a_package_version_is_matched_by_its_upstream_part(version: str, package: str | None) -> None:
    offered = ["1:2.15.1-1", "2.10.27-1+b2", "2.9.10+ds-1"]
    assert debian.exact_package_version(offered, version) == package


def test_a_commands_lines_are_reported_and_its_output_returned() -> None:
    said: list[str] = []
    program = "import sys; print('out'); print(' one ', file=sys.stderr); print('two', file=sys.stderr)"
    assert run([sys.executable, "-c", program], limit=300, report=said.append) == "out\n"
    assert said == ["one", "two"]


def test_a_failing_command_is_reported_with_its_last_line() -> None:
    program = "import sys; print('bad', file=sys.stderr); sys.exit(7)"
    with pytest.raises(WayFailedError, match="ended with 7: bad"):
        run([sys.executable, "-c", program], limit=300, report=ignore)


def test_a_missing_command_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # a folder of PATH that may not be read is another error
    with pytest.raises(WayFailedError, match="no-such-command: No such file"):
        run(["no-such-command"], limit=300, report=ignore)


def test_a_command_over_its_limit_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    # The child of the child holds the pipes too: run() would not return if it were left alive.
    monkeypatch.setattr(processes, "HEARTBEAT", 0.01)
    said: list[str] = []
    with pytest.raises(WayFailedError, match=r"sh took longer than 0\.05 s"):
        run(["sh", "-c", "sleep 3600 & sleep 3600"], limit=0.05, report=said.append)
    assert said[0] == "sh: still running after 0 s"
