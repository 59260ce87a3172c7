"""What a run's history says of how it was started, and what it must not say."""

import pytest

from nats_conformance.command.whole_run import _without_secrets
from nats_conformance.errors import SubjectError
from nats_conformance.raw_client import RawClient, shown_address


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (["--server", "nats://me:se@cret@h:4222"], ["--server", "nats://h:4222"]),
        (["--server=nats://token@h"], ["--server=nats://h"]),
        (["--server", "me:secret@h:4222"], ["--server", "h:4222"]),
        (["--server=me:secret@h:4222"], ["--server=h:4222"]),
        (["--library", "a nats://u:p@h b tls://u:p@g,nats://u:p@i"], ["--library", "a nats://h b tls://i"]),
        (["--cases", "mine@home", "--server", "h"], ["--cases", "mine@home", "--server", "h"]),
    ],
)
def test_no_credentials_are_recorded(given: list[str], reported: list[str]) -> None:
    assert _without_secrets(given) == reported


def test_an_address_is_shown_without_credentials() -> None:
    assert shown_address("nats://me:se@cret@h:4222") == "nats://h:4222"
    assert shown_address("me:secret@h") == "h"


async def test_an_error_quotes_no_credentials() -> None:
    with pytest.raises(SubjectError) as raised:
        await RawClient.connect("nats://me:se/cret@h:4222")
    assert "se" not in str(raised.value).replace("expected an address such as", "")
    assert "cret" not in str(raised.value)
