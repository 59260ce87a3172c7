"""Looks for a Java that can run Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from nats_bridge_spark.errors import SparkMissingError

MINIMUM: Final = 17
"""The oldest Java that Spark 4 runs on."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def require_java() -> int:
    """Look for Java like Spark, in `JAVA_HOME` or else on the path. Return its major version.

    Raises:
        SparkMissingError: there is none, it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise SparkMissingError(
                f"JAVA_HOME={home} has no bin/java: set it to a Java {MINIMUM} or newer, or unset it"
            )
    else:
        found = shutil.which("java")
        if found is None:
            raise SparkMissingError(
                f"Java is not installed: Spark needs Java {MINIMUM} or newer on the path, or JAVA_HOME"
            )
        java = Path(found)
    ran = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace", check=False)
    version = _VERSION.search(ran.stderr + ran.stdout)
    if ran.returncode or version is None:
        said = next(iter((ran.stderr + ran.stdout).strip().splitlines()), "nothing")
        raise SparkMissingError(f"{java} -version: exit code {ran.returncode}, and it says: {said}")
    if int(version[1]) < MINIMUM:
        raise SparkMissingError(f"{java} is Java {version[1]}: Spark needs Java {MINIMUM} or newer")
    return int(version[1])
