"""Explains a failed Spark job in one or two lines, with a remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from nats_bridge.bridge.errors import BridgeError
from nats_bridge.pipeline.errors import JobFailedError, PipelineError, reported


@dataclass(frozen=True, slots=True)
class _Sign:
    """A pattern in Spark's text and its meaning; `{0}` is the pattern's first group."""

    pattern: re.Pattern[str]
    meaning: str


def _sign(pattern: str, meaning: str) -> _Sign:
    return _Sign(re.compile(pattern, re.DOTALL), meaning)


_SIGNS: Final = (
    _sign(
        r"No space left on device",
        "no space is left on a disk: where the job writes, or where Spark keeps what it sorts (spark.local.dir)",
    ),
    _sign(r"Disk quota exceeded", "a disk quota is used up"),
    _sign(
        r"Total size of serialized results .{0,200}?bigger than (spark\.driver\.maxResultSize[^\n]*)",
        "too much came back to the driver: its limit is {0}",
    ),
    _sign(
        r"java\.lang\.OutOfMemoryError: ([^\n]*)|GC overhead limit|SparkOutOfMemoryError",
        "Java ran out of memory: give more, such as --spark spark.driver.memory=4g (on a cluster"
        " spark.executor.memory), or cut the work into more partitions",
    ),
    _sign(
        r"ExecutorLostFailure \(executor (\S+) exited[^)]*\)",
        "executor {0} was lost (killed, out of memory, or its machine failed)",
    ),
    _sign(
        r"Python worker failed to connect back",
        "a Python process did not start in the ten seconds that Spark gives it: the machine is too busy (run it again),"
        " or it lacks pyarrow or nats-bridge (PYSPARK_PYTHON says which Python workers are)",
    ),
    _sign(
        r"Python worker exited unexpectedly",
        "a Python worker died: out of memory, killed, or it lacks pyarrow or nats-bridge"
        " (PYSPARK_PYTHON says which Python workers are)",
    ),
    _sign(
        r"Initial job has not accepted any resources|All masters are unresponsive",
        "the cluster gives no resources: is the master there, has it workers with enough memory?",
    ),
    _sign(r"Permission denied(?::\s*([^\n]*))?", "permission denied: {0}"),
    _sign(r"Mkdirs failed to create (\S+)", "a directory cannot be made: {0}"),
)

_JAVA_GONE: Final = re.compile(
    r"Answer from Java side is empty|Error while sending or receiving|Connection refused|Py4JNetworkError"
    r"|Connection reset|Broken pipe"
)
_STARTS: Final = (
    _sign(
        r"(Could not reserve enough space[^\n]*|Invalid maximum heap size[^\n]*|insufficient memory[^\n]*)",
        "Java gets no memory: {0}; ask for less with --spark spark.driver.memory=1g",
    ),
    _sign(r"UnsupportedClassVersionError", "this Java is too old for Spark: it needs Java 17 or newer"),
    _sign(r"(Unrecognized (?:VM )?option[^\n]*)", "Java refuses its options: {0}"),
)
_CANCELLED: Final = re.compile(r"SPARK_JOB_CANCELLED|Job \d+ cancelled")
_PYTHON_ERROR: Final = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)): .*$", re.MULTILINE)
_NOISE: Final = re.compile(
    r"^\s*(?:at |\.\.\. \d+ more|An error occurred while calling|Traceback|File \"|JVM stacktrace|Driver stacktrace"
    r"|An exception was thrown from the Python worker)"
)
_STAGE: Final = re.compile(r".*most recent failure: Lost task [^:]*?\): ", re.DOTALL)
_CLASS: Final = re.compile(r"^:?\s*(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")


def failure(job: str, error: BaseException) -> PipelineError | BridgeError:
    """The message of an error that ended a job: ours as it was raised, else Spark's in a line.

    Args:
        job: what the job is called, such as `capture ORDERS`.
        error: what came out of Spark, or was raised on purpose.
    """
    if isinstance(error, BridgeError) and not isinstance(error, PipelineError):
        return error
    ours = reported(error)
    if ours is not None:
        return ours
    text = str(error)
    for sign in _SIGNS:
        found = sign.pattern.search(text)
        if found:
            return JobFailedError(f"{job}: {_meaning(sign, found)}")
    if type(error).__name__ in {"Py4JNetworkError", "ConnectionRefusedError"} or (
        type(error).__module__.startswith("py4j") and _JAVA_GONE.search(text)
    ):
        return JobFailedError(f"{job}: Spark's Java process has ended: killed, or out of memory")
    if _CANCELLED.search(text):
        return JobFailedError(f"{job}: Spark's job was cancelled")
    return JobFailedError(f"{job}: {_first_line(error, text)}")


def meaning_of_start(said: str) -> str:
    """The reason why Java or Spark did not start, from its output."""
    for sign in _STARTS:
        found = sign.pattern.search(said)
        if found:
            return _meaning(sign, found)
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("WARNING")]
    return f"Spark does not start: {lines[-1] if lines else 'Java ended at once'}"


def _meaning(sign: _Sign, found: re.Match[str]) -> str:
    group = (found.group(1) or "") if found.groups() else ""
    return sign.meaning.format(group.strip()).rstrip(": ")


def _first_line(error: BaseException, text: str) -> str:
    raised = _PYTHON_ERROR.findall(text)
    if raised and "Traceback" in text:
        return f"a task failed: {raised[-1]}"
    text = _STAGE.sub("", text, count=1)
    for line in text.splitlines():
        if line.strip() and not _NOISE.match(line):
            meant = _CLASS.sub("", line).strip().removeprefix(": ")
            return meant if len(meant) <= 400 else meant[:400] + "…"
    return f"unexpected {type(error).__name__}"
