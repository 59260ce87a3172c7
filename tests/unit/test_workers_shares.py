"""Which rule is on which worker, and how many workers there are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ConfigError
from bridge.settings import Settings, load
from bridge.workers.cores import usable_cores, worker_count
from bridge.workers.forms import settings_from, settings_to
from bridge.workers.shares import share_of, share_out

NAMES = st.lists(st.sampled_from("abcdefghij"), unique=True)


def settings(rules: int, workers: Any = 1) -> Settings:
    republish = {"src": ">", "dest": "x.>"}
    listed = [{"name": f"r{n}", "kind": "republish", "stream": "S", "republish": republish} for n in range(rules)]
    return Settings.model_validate({"workers": workers, "rules": listed})


def test_rules_go_round() -> None:
    assert share_out("abcde", 2) == {"a": 1, "b": 2, "c": 1, "d": 2, "e": 1}


def test_a_new_rule_goes_where_the_fewest_are() -> None:
    assert share_out("xabcd", 3, {"a": 1, "b": 1, "c": 2}) == {"x": 3, "a": 1, "b": 1, "c": 2, "d": 2}


@given(NAMES, NAMES, st.integers(1, 5))
def test_no_rule_moves_and_none_is_left_out(before: list[str], after: list[str], workers: int) -> None:
    earlier = share_out(before, workers)
    later = share_out(after, workers, earlier)
    assert list(later) == after
    assert set(later.values()) <= set(range(1, workers + 1))
    assert all(later[name] == earlier[name] for name in after if name in earlier)
    loads = [list(earlier.values()).count(worker) for worker in range(1, workers + 1)]
    assert max(loads) - min(loads) <= 1


def test_a_share_is_the_rest_of_the_configuration_with_its_own_rules() -> None:
    whole = settings(3, workers=2)
    share = share_of(whole, share_out(["r0", "r1", "r2"], 2), 1)
    assert [rule.name for rule in share.rules] == ["r0", "r2"]
    assert share.http.address is None
    assert share.http.wedged_after == whole.http.wedged_after
    assert share.connections == whole.connections
    assert settings_from(settings_to(share)) == share


@pytest.mark.parametrize(("given", "meant"), [("auto", "auto"), (3, 3), ("3", 3), (256, 256)])
def test_the_key(given: Any, meant: Any) -> None:
    assert settings(1, given).workers == meant


@pytest.mark.parametrize("given", [0, -1, 257, True, 1.5, "many", "", None, "٣"])
def test_what_the_key_does_not_take(given: Any, tmp_path: Path) -> None:
    rules = "rules: [{name: a, kind: republish, stream: S, republish: {src: a.b, dest: c}}]\n"
    file = tmp_path / "bridge.yaml"
    written = {None: "null", True: "true", "": "''"}.get(given, given)
    file.write_text(f"workers: {written}\n{rules}", "utf-8")
    with pytest.raises(ConfigError, match=r"workers: .*write auto or a whole number from 1 to 256"):
        load(file, {})


def test_the_variable(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text("rules: [{name: a, kind: republish, stream: S, republish: {src: a.b, dest: c}}]\n", "utf-8")
    assert load(file, {}).workers == 1
    assert load(file, {"BRIDGE_WORKERS": "auto"}).workers == "auto"
    assert load(file, {"BRIDGE_WORKERS": "4"}).workers == 4


def test_never_more_workers_than_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.workers.cores.usable_cores", lambda: 4)
    assert [worker_count(settings(rules, "auto")) for rules in (1, 3, 9)] == [1, 3, 4]
    assert [worker_count(settings(rules, 8)) for rules in (1, 3, 9)] == [1, 3, 8]
    assert worker_count(settings(9)) == 1


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {}, None),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "20000 100000\n"}, 1),
        # whatever is around it limits, too
        ("0::/a/b\n", {"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "max 100000\n"}, 1),
        # the path of a container's host, which is not there inside
        ("0::/../../host/path\n", {"cpu.max": "100000 100000\n"}, 1),
        ("4:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ("4:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("4:memory:/\n", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("nonsense\n", {"cpu.max": "100000 100000\n"}, None),
        ("0::/\n", {"cpu.max": "nonsense\n"}, None),
    ],
)
def test_cores_that_may_be_used(
    own: str, files: dict[str, str], quota: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    (tmp_path / "cgroup").write_text(own, "utf-8")
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text, "utf-8")
    assert usable_cores(tmp_path / "groups", tmp_path / "cgroup") == (8 if quota is None else quota)
    assert usable_cores(tmp_path / "groups", tmp_path / "none") == 8
