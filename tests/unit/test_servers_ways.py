"""What can be shown without a network of each way of getting a server, and commands with a time limit."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import platform
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nats_conformance.native_servers import debian, processes
from nats_conformance.native_servers.errors import WayFailedError
from nats_conformance.native_servers.processes import run
from nats_conformance.native_servers.releases import BASE, archive_name, download

SCRIPT = b"#!/bin/sh\necho 'nats-server: v2.10.27'\n"


def ignore(_: str) -> None:
    return


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        return


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder and the address at which it is served."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")  # releases come through the environment's proxy, and this site is here
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def publish(folder: Path, *, member: str = "{stem}/nats-server", digest: str | None = None) -> str:
    """Put a release of 2.10.27 for this platform into ``folder``; returns the archive's name."""
    name = archive_name("2.10.27", platform.system(), platform.machine())
    release = folder / "v2.10.27"
    release.mkdir()
    with tarfile.open(release / name, "w:gz") as archive:
        entry = tarfile.TarInfo(member.format(stem=name.removesuffix(".tar.gz")))
        entry.size = len(SCRIPT)
        archive.addfile(entry, io.BytesIO(SCRIPT))
    digest = digest or hashlib.sha256((release / name).read_bytes()).hexdigest()
    (release / "SHA256SUMS").write_text(f"{'0' * 64}  other.zip\n{digest}  {name}\n")
    return name


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("Linux", "x86_64", "nats-server-v2.10.27-linux-amd64.tar.gz"),
        ("Linux", "aarch64", "nats-server-v2.10.27-linux-arm64.tar.gz"),
        ("Linux", "armv7l", "nats-server-v2.10.27-linux-arm7.tar.gz"),
        ("Darwin", "arm64", "nats-server-v2.10.27-darwin-arm64.tar.gz"),
    ],
)
def test_a_release_is_named_by_platform(system: str, machine: str, name: str) -> None:
    assert archive_name("2.10.27", system, machine) == name


def test_a_platform_without_releases_is_reported() -> None:
    with pytest.raises(WayFailedError, match="no releases for Plan9 on vax"):
        archive_name("2.10.27", "Plan9", "vax")


def test_releases_are_looked_for_at_the_project() -> None:
    assert BASE == "https://github.com/nats-io/nats-server/releases/download"


def test_a_release_is_downloaded_checked_and_unpacked(site: tuple[Path, str], tmp_path: Path) -> None:
    name = publish(site[0])
    said: list[str] = []
    binary = download("2.10.27", tmp_path, said.append, base=site[1])
    assert binary.read_bytes() == SCRIPT
    assert os.access(binary, os.X_OK)
    assert said == [f"downloading {site[1]}/v2.10.27/{name}"]


def test_a_release_with_another_checksum_is_refused(site: tuple[Path, str], tmp_path: Path) -> None:
    publish(site[0], digest="f" * 64)
    with pytest.raises(WayFailedError, match=f"SHA256SUMS says {'f' * 64}, the download has"):
        download("2.10.27", tmp_path, ignore, base=site[1])
    assert not (tmp_path / "nats-server").exists()


def test_a_release_without_a_checksum_is_refused(site: tuple[Path, str], tmp_path: Path) -> None:
    publish(site[0])
    (site[0] / "v2.10.27" / "SHA256SUMS").write_text("<html>\nnot found here at all\n")
    with pytest.raises(WayFailedError, match="SHA256SUMS says nothing"):
        download("2.10.27", tmp_path, ignore, base=site[1])


def test_a_release_without_the_binary_is_refused(site: tuple[Path, str], tmp_path: Path) -> None:
    publish(site[0], member="{stem}/README.md")
    with pytest.raises(WayFailedError, match="nats-server"):
        download("2.10.27", tmp_path, ignore, base=site[1])


def test_a_release_that_does_not_exist_is_reported_with_its_address(site: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(WayFailedError, match=r"v2\.10\.27/SHA256SUMS: .*404"):
        download("2.10.27", tmp_path, ignore, base=site[1])


STANZAS = f"""\
# the security archive comes first on purpose
Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Signed-By: {debian.KEYRING}

Types: deb deb-src
# a comment inside
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: {debian.KEYRING}
"""


@pytest.mark.parametrize(
    ("file", "text", "address"),
    [
        ("sources.list.d/debian.sources", STANZAS, "http://mirror.example/debian"),
        ("sources.list", "deb http://a.example/debian/ bookworm main\n", "http://a.example/debian/"),
        (
            "sources.list.d/x.list",
            f"#deb http://no.example/debian sid main\ndeb-src http://no.example/debian sid main\n"
            f"deb [arch=amd64 signed-by={debian.KEYRING}] https://b.example/d trixie main # why\n",
            "https://b.example/d",
        ),
    ],
)
def test_the_mirror_is_the_machines_own(tmp_path: Path, file: str, text: str, address: str) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / file).write_text(text)
    assert debian.mirror(tmp_path) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "deb http://x.example/debian-security bookworm-security main\n",
        "deb [signed-by=/usr/share/keyrings/nodesource.gpg] http://x.example/debian nodistro main\n",
        "deb http://archive.example/ubuntu noble main\n",
        "deb http://x.example/debian ./\n",
    ],
)
def test_foreign_archives_are_no_debian_mirror(tmp_path: Path, text: str) -> None:
    (tmp_path / "sources.list").write_text(text)
    with pytest.raises(WayFailedError, match="names no Debian archive"):
        debian.mirror(tmp_path)


def test_a_disabled_entry_is_no_mirror(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(
        "Types: deb\nEnabled: no\nURIs: http://mirror.example/debian\nSuites: sid\nComponents: main\n"
    )
    with pytest.raises(WayFailedError):
        debian.mirror(tmp_path)


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
