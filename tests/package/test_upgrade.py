"""A rolling upgrade, and the way back: replicas of the last release's wheels and of this one's, under load.

Before the first release the other wheels are those of an earlier commit; in a clone without history, of this one.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.conftest import _name_numbers, raw_peer, servers, unique_name
from tests.live.leadership.replicas import LONG, EveryKind, replicas, under_load
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.package.conftest import PROJECT, Release, build

__all__ = ["_name_numbers", "raw_peer", "servers", "unique_name"]

EARLIER = "339948d"
"""Where there is no release yet."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Two folders, each with the packages of wheels."""

    last: Path
    this: Path


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False)


def _unpacked(wheels: list[Path], folder: Path) -> Path:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    # What `python -m nats_bridge` runs there.
    asked = [sys.executable, "-c", "import nats_bridge; print(nats_bridge.__file__)"]
    found = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert Path(found).is_relative_to(folder)
    return folder


@pytest.fixture(scope="module")
def versions(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Versions:
    folder = tmp_path_factory.mktemp("upgrade")
    tag = _git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^").stdout.strip()
    archive = folder / "last.tar"
    assert any(
        not _git("archive", "--output", str(archive), tree).returncode for tree in (tag, EARLIER, "HEAD") if tree
    )
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "source", filter="tar")
    source = folder / "source"
    # Before the workspace there was one package at the top.
    for place in (source,) if (source / "nats_bridge").exists() else (source / "transforms", source / "bridge"):
        build(place, folder, "--wheel")
    last = _unpacked(list(folder.glob("*.whl")), folder / "last")
    return Versions(last, _unpacked(release.wheels("transforms", "bridge"), folder / "this"))


NEW = {"watch"}
"""Rules of kinds that the last version does not know."""


@pytest.mark.parametrize("back", [False, True], ids=["upgrade", "back"])
async def test_one_version_takes_over_from_the_other_under_load(
    back: bool, versions: Versions, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(LIVE_VERSIONS[-1])
    here = await EveryKind.make(await raw_peer(url), unique_name("upgrade"))
    before, after = (versions.this, versions.last) if back else (versions.last, versions.this)
    rules = [rule for rule in here.rules if rule["name"] not in NEW]
    async with replicas(tmp_path, url, here.name, rules, LONG) as group:
        await group.free(here.peer)
        first = await group.start(version=before)
        await group.leads(first)
        async with under_load(here):
            second = await group.start(version=after)  # on standby
            await here.least.count(500)
            await here.report_something()
            assert await first.stop() == 0, first.log
            await group.leads(second)
            await here.report_something()
            await here.least.count(len(here.least.messages) + 500)
        end = await here.end()
        assert await second.stop() == 0, second.log
    await here.keep_what_they_promise(end, crashed=False)
