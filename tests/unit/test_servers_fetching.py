"""Getting native servers: order, versions, cache, refusals; with stand-ins that answer ``-v``."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nats_conformance.native_servers import (
    InvalidVersionError,
    ServerCache,
    ServerNotFoundError,
    available,
    fetch,
    resolve,
)
from nats_conformance.native_servers.binary import require_version, version_of
from nats_conformance.native_servers.cache import default_root
from nats_conformance.native_servers.errors import ServersError, WayFailedError
from nats_conformance.native_servers.fetching import WAYS, Way
from nats_conformance.native_servers.go_build import MODULE
from nats_conformance.native_servers.go_build import build as go_build
from nats_conformance.native_servers.versions import canonical, is_minor, newest_patch, numbers, parse
from nats_transforms.tested_versions import TESTED_VERSIONS

Report = Callable[[str], None]


def stand_in(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def makes(version: str) -> Way:
    return Way("made", lambda _, folder, __: stand_in(folder / "nats-server", f"nats-server: v{version}"))


def refuses(name: str, reason: str) -> Way:
    def obtain(version: str, folder: Path, report: Report) -> Path:
        raise WayFailedError(reason)

    return Way(name, obtain)


@pytest.fixture
def cache(tmp_path: Path) -> ServerCache:
    return ServerCache(tmp_path / "cache")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An otherwise empty PATH folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_the_ways_and_their_order() -> None:
    assert [way.name for way in WAYS] == ["go install", "Debian packages"]


def test_one_on_path_comes_first(path: Path, cache: ServerCache) -> None:
    wanted = stand_in(path / "nats-server", "nats-server: v2.10.27")
    stand_in(cache.path("2.10.27"), "nats-server: v2.10.27")
    said: list[str] = []
    assert fetch("2.10.27", cache=cache, report=said.append, ways=[]) == wanted
    assert said == [f"nats-server 2.10.27: PATH, {wanted}"]


def test_another_version_on_path_is_passed_over_for_the_cache(path: Path, cache: ServerCache) -> None:
    stand_in(path / "nats-server", "nats-server: v2.10.26")
    wanted = stand_in(cache.path("2.10.27"), "nats-server: v2.10.27")
    assert fetch("v2.10.27", cache=cache, ways=[]) == wanted


@pytest.mark.usefixtures("path")
def test_ways_are_tried_in_order_and_the_result_is_kept(cache: ServerCache) -> None:
    said: list[str] = []
    ways = [refuses("first", "no tools"), makes("2.10.27"), refuses("last", "never asked")]
    found = fetch("2.10.27", cache=cache, report=said.append, ways=ways)
    assert found == cache.path("2.10.27")
    assert version_of(found) == "2.10.27"
    assert said == [
        "nats-server 2.10.27: trying first",
        "nats-server 2.10.27: first failed: no tools",
        "nats-server 2.10.27: trying made",
        f"nats-server 2.10.27: made, kept as {found}",
    ]
    assert fetch("2.10.27", cache=cache, ways=[]) == found
    assert sorted(file.name for file in found.parent.iterdir()) == ["nats-server"]


@pytest.mark.usefixtures("path")
def test_a_pre_release_is_had_by_its_name(cache: ServerCache) -> None:
    found = fetch("v2.16.0-RC.1", cache=cache, ways=[makes("2.16.0-RC.1")])
    assert found == cache.path("2.16.0-RC.1")
    assert fetch("2.16.0-RC.1", cache=cache, ways=[]) == found


@pytest.mark.usefixtures("path")
def test_a_wrong_binary_is_refused_and_not_kept(cache: ServerCache) -> None:
    with pytest.raises(ServerNotFoundError) as caught:
        fetch("2.10.27", cache=cache, ways=[makes("2.10.26")])
    assert "says it is 2.10.26, wanted 2.10.27" in dict(caught.value.attempts)["made"]
    assert cache.versions() == []


@pytest.mark.usefixtures("path")
def test_a_wrong_binary_in_the_cache_is_replaced(cache: ServerCache) -> None:
    stand_in(cache.path("2.10.27"), "nats-server: v2.9.0")
    assert version_of(fetch("2.10.27", cache=cache, ways=[makes("2.10.27")])) == "2.10.27"


@pytest.mark.usefixtures("path")
def test_failing_all_lists_each_way_and_the_remedy(cache: ServerCache) -> None:
    with pytest.raises(ServerNotFoundError) as caught:
        fetch("2.10.27", cache=cache, ways=[refuses("one", "reason one"), refuses("two", "reason two")])
    error = caught.value
    assert [way for way, _ in error.attempts] == ["PATH", "cache", "one", "two"]
    assert "one: reason one; two: reason two" in str(error)
    assert "nats-conform servers fetch 2.10.27" in str(error)
    assert error.exit_code == 3


@pytest.mark.usefixtures("path")
def test_without_any_tool_the_real_ways_say_what_is_missing(
    cache: ServerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServerNotFoundError) as caught:
        fetch("2.10.27", cache=cache, ways=WAYS)
    reasons = dict(caught.value.attempts)
    assert reasons["PATH"] == "there is no nats-server on it"
    assert reasons["go install"] == "there is no Go on PATH"
    assert reasons["Debian packages"] == "there is no apt-get on PATH"


@pytest.mark.parametrize(
    "text", ["", "2", "2.x", "2.10.27.1", "2.10-RC.1", "2.10.27-/../x", "../2.10.27", "latest", "2.10.٢"]
)
def test_a_text_that_is_no_version_is_refused(text: str, cache: ServerCache) -> None:
    with pytest.raises(InvalidVersionError, match="expected a form such as") as caught:
        fetch(text, cache=cache, ways=[])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\necho hello\n", "ended with 0: hello"),
        ("#!/bin/sh\nexit 3\n", "ended with 3: no output"),
        ("#!/bin/sh\necho 'nats-server: v2.10.27'\nexit 1\n", "ended with 1: nats-server"),
        ("#!/no/such/interpreter\n", "No such file"),
    ],
)
def test_a_binary_that_does_not_say_its_version_is_refused(tmp_path: Path, script: str, reason: str) -> None:
    binary = tmp_path / "nats-server"
    binary.write_text(script)
    binary.chmod(0o755)
    with pytest.raises(WayFailedError, match=reason):
        require_version(binary, "2.10.27")


def test_two_processes_fetching_at_once_build_once_and_both_get_it(tmp_path: Path, path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from nats_conformance.native_servers import ServerCache, fetch
from nats_conformance.native_servers.fetching import Way

def build(version, folder, report):
    with open({str(tmp_path / "builds")!r}, "a") as log:
        log.write("built\\n")
    print("building", flush=True)
    sys.stdin.readline()
    binary = folder / "nats-server"
    binary.write_text("#!/bin/sh\\necho 'nats-server: v2.10.27'\\n")
    binary.chmod(0o755)
    return binary

print("starting", flush=True)
cache = ServerCache(Path({str(tmp_path / "cache")!r}))
print(fetch("2.10.27", cache=cache, ways=[Way("made", build)]), flush=True)
"""
    root = str(Path(__file__).parents[2])
    first, second = (
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=root,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    )
    with first, second:
        lines: list[list[str]] = [[], []]
        someone_builds = threading.Event()

        def read(process: subprocess.Popen[str], into: list[str]) -> None:
            assert process.stdout is not None
            for line in process.stdout:
                into.append(line.strip())
                if line.startswith("building"):
                    someone_builds.set()

        readers = [threading.Thread(target=read, args=pair) for pair in zip((first, second), lines, strict=True)]
        for reader in readers:
            reader.start()
        assert someone_builds.wait(120)
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.write("continue\n")
            process.stdin.flush()
        for reader in readers:
            reader.join()
    wanted = str(tmp_path / "cache" / "servers" / "2.10.27" / "nats-server")
    assert [said[-1] for said in lines] == [wanted, wanted]
    assert (tmp_path / "builds").read_text() == "built\n"
    assert (first.returncode, second.returncode) == (0, 0)


def test_a_reader_never_sees_half_a_binary(tmp_path: Path, cache: ServerCache) -> None:
    made = stand_in(tmp_path / "made", "nats-server: v2.10.27")
    before = cache.keep(made, "2.10.27").stat().st_ino
    with cache.path("2.10.27").open() as reader:
        cache.keep(stand_in(tmp_path / "other", "nats-server: v2.10.27 again"), "2.10.27")
        assert reader.read() == made.read_text()
    assert cache.path("2.10.27").stat().st_ino != before


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    everything = {"NATS_BRIDGE_CACHE": "/own", "XDG_CACHE_HOME": "/shared"}
    assert default_root(everything) == Path("/own")
    assert default_root({"XDG_CACHE_HOME": "/shared", "NATS_BRIDGE_CACHE": ""}) == Path("/shared/nats-bridge")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_root({}) == tmp_path / ".cache" / "nats-bridge"
    monkeypatch.setenv("NATS_BRIDGE_CACHE", str(tmp_path / "own"))
    assert ServerCache().path("2.10.27") == tmp_path / "own" / "servers" / "2.10.27" / "nats-server"


def test_what_is_at_hand(path: Path, cache: ServerCache) -> None:
    assert available(cache) == []
    stand_in(cache.path("2.10.27"), "nats-server: v2.10.27")
    stand_in(cache.path("2.9.10"), "nats-server: v2.9.10")
    (cache.path("2.9.10").parent.parent / "notes").mkdir()
    stand_in(path / "nats-server", "nats-server: v2.12.1")
    assert [(one.version, one.origin) for one in available(cache)] == [
        ("2.12.1", "path"),
        ("2.9.10", "cache"),
        ("2.10.27", "cache"),
    ]
    stand_in(path / "nats-server", "something else")
    assert [one.origin for one in available(cache)] == ["cache", "cache"]


def test_a_minor_is_its_newest_released_patch(cache: ServerCache) -> None:
    listed = ["v2.11.2", "v2.11.10", "v2.11.11-RC.1", "v2.12.0", "v2.1.99"]
    said: list[str] = []
    assert resolve("2.11", cache=cache, report=said.append, released=lambda *_: listed) == "2.11.10"
    assert said == ["nats-server 2.11: the newest patch is 2.11.10, from go list"]


def test_without_go_a_minor_is_the_newest_cached_or_known_patch(cache: ServerCache) -> None:
    def no_go(folder: Path, report: Report) -> list[str]:
        raise WayFailedError("there is no Go on PATH")

    known = newest_patch("2.11", TESTED_VERSIONS)
    assert known is not None
    assert resolve("2.11", cache=cache, released=no_go) == known
    stand_in(cache.path("2.11.999"), "")
    said: list[str] = []
    assert resolve("2.11", cache=cache, report=said.append, released=no_go) == "2.11.999"
    assert "there is no Go on PATH" in said[0]
    with pytest.raises(ServerNotFoundError, match=r"no release of the line 2\.8 is known"):
        resolve("2.8", cache=cache, released=no_go)


def test_reading_versions() -> None:
    assert parse(" v2.10.27") == (2, 10, 27)
    assert is_minor("2.10")
    assert not is_minor("v2.10.0")
    assert canonical("v2.16.0-RC.1") == "2.16.0-RC.1"
    assert numbers("2.16.0-RC.1") == (2, 16, 0)
    assert newest_patch("2.16", ["2.16.0", "2.16.1-RC.1"]) == "2.16.0"
    assert newest_patch("2.10", ["nonsense", "2.10", "2.9.99"]) is None
    with pytest.raises(InvalidVersionError, match=r"such as 2\.10\.0"):
        parse("2.10")
    with pytest.raises(InvalidVersionError, match="not a pre-release"):
        parse("2.10.27-RC.1")
    assert issubclass(InvalidVersionError, ServersError)


def test_go_is_asked_for_exactly_that_version_with_a_clean_environment(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = path / "go"
    go.write_text('#!/bin/sh\necho "$@ [$GOFLAGS] [$GOOS]" >&2\necho "#!/bin/sh" > "$GOBIN/nats-server"\n')
    go.chmod(0o755)
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    monkeypatch.setenv("GOOS", "plan9")
    said: list[str] = []
    assert go_build("2.10.27", tmp_path, said.append) == tmp_path / "nats-server"
    assert said == [f"go install {MODULE}@v2.10.27", f"install {MODULE}@v2.10.27 [] []"]
    assert (tmp_path / "nats-server").exists()
