"""What commands print of a result."""

import json

import pytest

from nats_bridge.cli.asking import show


def test_texts_of_messages_are_printed_whatever_they_hold(capsys: pytest.CaptureFixture[str]) -> None:
    # Half of a pair, as JSON of any client can hold it, and the beginning of an escape sequence in one character.
    result = {"reason": "\ud800 \x9b31m größer"}
    show(lambda: result, list, as_json=True)
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == result
