"""Reading a sidecar's `/metrics`, as Prometheus does."""

from __future__ import annotations

import aiohttp
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from nats_bridge.app.sidecar import Sidecar


class Scrape:
    """The samples of one request to `/metrics`."""

    def __init__(self, text: str, content_type: str) -> None:
        parse = open_metrics if "openmetrics" in content_type else text_string_to_metric_families
        self.text = text
        self.content_type = content_type
        self.families = {family.name: family for family in parse(text)}
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """The value of one sample, all of whose labels are given; `kind` is that of the rule where it has its name."""
        return self.samples[f"nats_bridge_{name}", frozenset(labels.items())]

    @property
    def counters(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """All that must never fall."""
        ends = ("_total", "_count", "_sum", "_bucket")
        return {key: value for key, value in self.samples.items() if key[0].endswith(ends)}


async def scrape(bridge: Sidecar, accept: str = "") -> Scrape:
    """Look once."""
    assert bridge.http is not None
    host, port = bridge.http
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}/metrics", headers={"Accept": accept} if accept else {}) as answer,
    ):
        assert answer.status == 200
        return Scrape(await answer.text(), answer.headers["Content-Type"])
