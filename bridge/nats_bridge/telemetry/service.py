"""Telemetry of a running sidecar: samples for the history, all metrics, and OTLP if the environment requests it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING

import structlog

from nats_bridge.client.tasks import end_tasks, happens
from nats_bridge.client.waiting import CLOSING
from nats_bridge.observability.rule_metrics import SAMPLE_INTERVAL
from nats_bridge.rule_kinds import kind_of
from nats_bridge.settings import Rule, Settings
from nats_bridge.telemetry.environment import wanted
from nats_bridge.telemetry.readings import VERSION, Reading, readings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from nats_bridge.app.sidecar import Sidecar
    from nats_bridge.telemetry.tracing import RuleTracing


_log = structlog.get_logger("bridge.telemetry")


class TelemetryService:
    """The telemetry of a sidecar.

    Args:
        sidecar: the sidecar to report on.

    Attributes:
        last_export: the thread that exports the rest at the end, if there is an exporter.
    """

    def __init__(self, settings: Settings, sidecar: Sidecar) -> None:
        self._settings = settings
        self._sidecar = sidecar
        self._wanted = wanted(os.environ)
        self._shutdowns: list[Callable[[], None]] = []
        self._spans: TracerProvider | None = None
        self._sampling: asyncio.Task[None] | None = None
        self.last_export: Thread | None = None

    def start(self) -> None:
        """Begin, before any rule starts, so that the first one has its tracing."""
        for remark in self._wanted.remarks:
            _log.warning("telemetry.not_exported", reason=remark)
        trace = self._settings.telemetry.trace
        traces = self._wanted.traces and trace != "passthrough"
        if trace != "passthrough" and not traces:
            _log.warning(
                "telemetry.no_traces",
                trace=trace,
                meaning="no exporter for spans is configured (OTEL_EXPORTER_OTLP_ENDPOINT), so none are created",
            )
        if self._wanted.metrics or traces:
            self._export(traces=traces)
        self._sampling = asyncio.create_task(self._sample())

    async def stop(self) -> None:
        """Export the rest, for a few seconds at most."""
        await end_tasks(self._sampling)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def shut_down() -> None:
            for shutdown in self._shutdowns:
                shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any longer
                loop.call_soon_threadsafe(ended.set)

        if not self._shutdowns:
            return
        # A daemon thread, so the end of the process does not wait for the export.
        self.last_export = Thread(target=shut_down, daemon=True)
        self.last_export.start()
        if not await happens(ended, within=CLOSING):
            _log.warning("telemetry.last_export_failed", seconds=CLOSING)
        self._shutdowns = []

    def tracing_of(self, rule: Rule) -> RuleTracing | None:
        """Return the tracing of a rule; None without spans."""
        mode = self._settings.telemetry.trace
        if self._spans is None or mode == "passthrough":
            return None
        from nats_bridge.telemetry.tracing import RuleTracing

        tracer = self._spans.get_tracer("nats-bridge")
        return RuleTracing(tracer, mode, rule.name, kind_of(rule).operation, rule.about)

    def _export(self, *, traces: bool) -> None:
        # Only now: loading all of this takes a while.
        from nats_bridge.telemetry.otlp import resource_of

        resource = resource_of(self._settings.name, VERSION)
        if self._wanted.metrics:
            from nats_bridge.telemetry.otlp_metrics import export_metrics

            self._shutdowns.append(export_metrics(self.readings, resource).shutdown)
        if traces:
            from nats_bridge.telemetry.tracing import start_tracing

            self._spans = start_tracing(resource)
            self._shutdowns.append(self._spans.shutdown)
        _log.info("telemetry.exports", metrics=self._wanted.metrics, traces=traces)

    def readings(self) -> list[Reading]:
        """Return every metric that has a value at this moment."""
        return list(readings(self._sidecar))

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_INTERVAL)
            for supervisor in self._sidecar.supervisors:
                supervisor.metrics.sample()
