"""Finds captures for a job in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from nats_bridge_spark.capture.place import Place, Places, place_of
from nats_bridge_spark.engine import is_local
from nats_bridge_spark.session import job_session, reporting


@contextmanager
def job_of_one_process(name: str, settings: Mapping[str, str]) -> Iterator[Places]:
    """Run a command's job in this process. Spark is only started to reach the directory of a capture.

    Args:
        name: the job's.
        settings: the user's settings of Spark.

    Raises:
        PipelineError, JobStoppedError: as `session.reporting` and `session.job_session` do.
    """
    with ExitStack() as sessions, reporting(name):

        def place(path: str) -> Place:
            if is_local(path):
                return place_of(None, path)
            return place_of(sessions.enter_context(job_session(name, settings=settings, quiet=False)), path)

        yield place
