"""When watching a stream is refused: the whole table."""

from typing import Any

import pytest

from nats_bridge.kinds.republish.side_effects import reason_against_watching

ALL: dict[str, Any] = {"config": {}}
EU: dict[str, Any] = {"config": {"filter_subject": "orders.eu.>"}}
US: dict[str, Any] = {"config": {"filter_subjects": ["orders.us.>", "orders.ca.>"]}}


def reason(retention: str, *consumers: dict[str, Any], watched: str | None = None, **more: bool) -> str | None:
    options = {"durable": False, "at_least_once": False} | more
    return reason_against_watching({"retention": retention, "subjects": ["orders.>"]}, consumers, watched, **options)


@pytest.mark.parametrize("more", [{}, {"durable": True}, {"at_least_once": True}])
def test_a_limits_stream_is_never_changed(more: dict[str, bool]) -> None:
    assert reason("limits", **more) is None


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
class TestRetentionByConsumers:
    @pytest.mark.parametrize(
        ("consumers", "watched"),
        [([ALL], None), ([ALL], "orders.eu.1"), ([EU], "orders.eu.*"), ([EU, US], "orders.ca.>"), ([EU, ALL], None)],
    )
    def test_a_stream_takes_everything_that_the_rule_watches(
        self, retention: str, consumers: list[dict[str, Any]], watched: str | None
    ) -> None:
        said = reason(retention, *consumers, watched=watched)
        if retention == "interest":
            assert said is None
        else:
            assert "while the sidecar's connection breaks would stay in the queue" in str(said)

    @pytest.mark.parametrize(
        ("consumers", "watched", "missing"),
        [
            ([], None, "orders.>"),
            ([EU], None, "orders.>"),
            ([EU, US], None, "orders.>"),
            ([EU], "orders.us.*", "orders.us.*"),
            ([EU], "orders.*.1", "orders.*.1"),
        ],
    )
    def test_no_stream_takes_what_the_rule_watches(
        self, retention: str, consumers: list[dict[str, Any]], watched: str | None, missing: str
    ) -> None:
        said = reason(retention, *consumers, watched=watched)
        assert said is not None
        assert f"no other consumer takes '{missing}'" in said

    def test_positions_and_confirmations_keep_messages(self, retention: str) -> None:
        assert "set durable: false" in str(reason(retention, ALL, durable=True))
        assert "use at_most_once" in str(reason(retention, ALL, at_least_once=True))
