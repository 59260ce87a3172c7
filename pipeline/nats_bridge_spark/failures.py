"""Explains a failed Spark job in one or two lines, with a remedy."""

import re
from typing import Final

from nats_bridge.errors import BridgeError
from nats_bridge_spark.errors import JobFailedError, PipelineError, reported

_SIGNS: Final = (
    (
        r"No space left on device",
        "no space is left on a disk: where the job writes, or where Spark keeps what it sorts (spark.local.dir)",
    ),
    (
        r"java\.lang\.OutOfMemoryError: ([^\n]*)|GC overhead limit|SparkOutOfMemoryError",
        "Java ran out of memory: give more, such as --spark spark.driver.memory=4g (on a cluster"
        " spark.executor.memory), or cut the work into more partitions",
    ),
    (
        r"ExecutorLostFailure \(executor (\S+) exited[^)]*\)",
        "executor {0} was lost (killed, out of memory, or its machine failed)",
    ),
    (
        r"Python worker failed to connect back",
        "a Python process did not start in the ten seconds that Spark gives it: the machine is too busy (run it again),"
        " or it lacks pyarrow or nats-bridge (PYSPARK_PYTHON says which Python workers are)",
    ),
    (
        r"Python worker exited unexpectedly",
        "a Python worker died: out of memory, killed, or it lacks pyarrow or nats-bridge"
        " (PYSPARK_PYTHON says which Python workers are)",
    ),
)
"""Patterns in Spark's text and their meanings; `{0}` is the pattern's first group."""

_JAVA_GONE: Final = re.compile(
    r"Answer from Java side is empty|Error while sending or receiving|Connection refused|Py4JNetworkError"
    r"|Connection reset|Broken pipe"
)
_CANCELLED: Final = re.compile(r"SPARK_JOB_CANCELLED|Job \d+ cancelled")
_PYTHON_ERROR: Final = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)): .*$", re.MULTILINE)
_NOISE: Final = re.compile(
    r"^\s*(?:at |\.\.\. \d+ more|An error occurred while calling|Traceback|File \"|JVM stacktrace|Driver stacktrace"
    r"|An exception was thrown from the Python worker)"
)
_STAGE: Final = re.compile(r".*most recent failure: Lost task [^:]*?\): ", re.DOTALL)
_PACKAGE: Final = re.compile(r"^:?\s*(?:[a-z]\w*\.)+(?=[A-Z]\w*(?:Exception|Error): )")


def failure(job: str, error: BaseException) -> PipelineError | BridgeError:
    """Return the error to show for a failed job: an own error as it was raised, or Spark's in one line."""
    if isinstance(error, BridgeError) and not isinstance(error, PipelineError):
        return error
    if (ours := reported(error)) is not None:
        return ours
    text = str(error)
    for pattern, meaning in _SIGNS:
        if found := re.search(pattern, text):
            return JobFailedError(f"{job}: {meaning.format(*found.groups())}")
    if type(error).__name__ in {"Py4JNetworkError", "ConnectionRefusedError"} or (
        type(error).__module__.startswith("py4j") and _JAVA_GONE.search(text)
    ):
        return JobFailedError(f"{job}: Spark's Java process has ended: killed, or out of memory")
    if _CANCELLED.search(text):
        return JobFailedError(f"{job}: Spark's job was cancelled")
    return JobFailedError(f"{job}: {_first_line(error, text)}")


def meaning_of_start(said: str) -> str:
    """Return the reason why Java or Spark did not start, from its output."""
    lines = (line.strip() for line in said.splitlines() if line.strip() and not line.startswith("WARNING"))
    first = next(lines, "Java ended at once")
    return f"Spark does not start: {first} (it needs Java 17 or newer, on the path or in JAVA_HOME)"


def _first_line(error: BaseException, text: str) -> str:
    raised = _PYTHON_ERROR.findall(text)
    if raised and "Traceback" in text:
        return f"a task failed: {raised[-1]}"
    text = _STAGE.sub("", text, count=1)
    for line in text.splitlines():
        if line.strip() and not _NOISE.match(line):
            meant = _PACKAGE.sub("", line).strip().removeprefix(": ")
            return meant if len(meant) <= 400 else meant[:400] + "…"
    return f"unexpected {type(error).__name__}"
