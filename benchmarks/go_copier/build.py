"""Building the Go program, once per state of its source, into the cache that also keeps native servers."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.errors import BenchmarkError
from nats_conformance.native_servers.cache import default_root

_SOURCES = Path(__file__).parent
_LIMIT = 600.0  # seconds


def built() -> Path:
    """The program.

    Raises:
        BenchmarkError: there is no Go here, or it cannot build it.
    """
    digest = hashlib.sha256(b"".join((_SOURCES / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")))
    program = default_root() / "peers" / f"go-copier-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise BenchmarkError("the peers need Go (go.dev/dl), which is not on PATH: install it, or leave out 'peers'")
    program.parent.mkdir(parents=True, exist_ok=True)
    whole = program.with_suffix(f".{os.getpid()}")
    environment = {**os.environ, "GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}
    try:
        subprocess.run(
            [go, "build", "-buildvcs=false", "-o", str(whole), "."],
            cwd=_SOURCES,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
        )
    except (subprocess.SubprocessError, OSError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise BenchmarkError(f"go build of benchmarks/go_copier: {said}") from None
    whole.rename(program)
    return program


def client_version() -> str:
    """The version of nats.go that it is built with."""
    found = re.search(r"^require github\.com/nats-io/nats\.go v(\S+)$", (_SOURCES / "go.mod").read_text("utf-8"), re.M)
    if found is None:
        raise BenchmarkError("benchmarks/go_copier/go.mod does not say which nats.go")
    return found[1]
