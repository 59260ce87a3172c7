from nats_bridge.client.untested_server import untested
from nats_transforms.tested_versions import TESTED

NEWEST = str(TESTED[-1])


def test_the_remark_names_both_versions() -> None:
    major, minor, patch = TESTED[-1].version
    newer = f"{major}.{minor}.{patch + 6}"
    assert untested(NEWEST) is None
    assert untested(newer) == (
        f"nats-server {newer} is newer than {NEWEST}, the newest of its line that this release was compared with,"
        " and is treated like it: look for a newer nats-bridge, or compare both with"
        f" `nats-conform run --versions {NEWEST},{newer}`"
    )
    for version in (f"{major}.{minor + 1}.0-RC.1", "2.13.4", "main"):
        assert untested(version) == (
            f"nats-server {version} is of a minor line that this release was not compared with, and is treated like"
            f" {NEWEST}: look for a newer nats-bridge"
        )
