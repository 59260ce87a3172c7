"""A running native server: on a free loopback port, watched through its log, stopped by its process id.

A server is ready when it has logged so. In every version from 2.9 to 2.15, with or without TLS, that line follows after
the port listens and JetStream has recovered. Ports are below the range of outgoing connections, so the kernel gives
them to no other process. On Linux, a bound socket keeps them from other callers of `free_port` while the server is
down, so a restart finds its port free.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

from nats_conformance.native_servers.binary import version_of
from nats_conformance.native_servers.errors import PortTakenError, ServersError, ServerStartError
from nats_conformance.native_servers.fetching import binary_of, fetch
from nats_conformance.native_servers.lifetime import Lifetime

HOST = "127.0.0.1"
READY_LIMIT = 120.0
"""Seconds until a silent server counts as not starting; generous, because a busy machine is slow."""
STOP_LIMIT = 60.0
_ANSWER_LIMIT = 10.0
_TRIES = 20
_LEAF_PORT = "$LEAF_PORT"
LEAF_LISTENER = f'host: "{HOST}", port: {_LEAF_PORT}, authorization: {{timeout: {READY_LIMIT:g}}}'
"""Members of `leafnodes`: a listener on a port that is free when the server starts.

It waits for a leaf's CONNECT as long as for a server: by default two seconds, which a busy machine exceeds.
"""
_POLL = 0.005
_READY = b"Server is ready"
_TAKEN = "address already in use"
PORTS = range(20000, 30000)
"""Ports to choose from at random.

A caller that starts servers from several processes gives each a separate range, because the port of a stopped server
looks free to the others.
"""

_running: set[NativeServer] = set()


def free_port() -> int:
    """Return a loopback port without a listener. Another process may take it at any moment: be ready to retry."""
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ServersError(f"no free port between {PORTS.start} and {PORTS.stop} on {HOST}")


class NativeServer(Lifetime):
    """One native server, with JetStream in a separate store.

    `version` is fetched if `binary` is None. `config` is text in the form of the server's configuration file (accounts,
    authorization, tls, limits); address, port, name, log and store are those of this object. `directory` contains
    configuration, store and log, and is kept; without it, `close` removes a temporary one. `port` 0 picks a free one.
    `monitor` also opens the HTTP monitoring port. If `config` contains `$LEAF_PORT`, like `LEAF_LISTENER`, `leaf_port`
    is picked as well.

    A context manager, plain and async: start on entry, `close` on exit.
    """

    def __init__(
        self,
        version: str | None = None,
        *,
        binary: Path | None = None,
        config: str = "",
        name: str = "",
        port: int = 0,
        jetstream: bool = True,
        monitor: bool = False,
        directory: Path | None = None,
        store_dir: Path | None = None,
    ) -> None:
        self.binary = binary_of(version, binary)
        self.version = version_of(self.binary)
        self.config = config
        self.jetstream = jetstream
        self.port = port
        self.monitor_port = 0
        self.leaf_port = 0
        self._monitor = monitor
        self._port_is_ours = port == 0
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"nats-server-{self.version}-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.store_dir = store_dir or self.directory / "store"
        self.log_file = self.directory / "server.log"
        self.name = name or f"native-{self.directory.name}"
        self._process: subprocess.Popen[bytes] | None = None
        self._kept_ports: list[int] = []  # file descriptors

    @property
    def url(self) -> str:
        """The address for clients, known once started."""
        if not self.port:
            raise ServersError(f"server {self.name} has no port before it is started")
        return f"nats://{HOST}:{self.port}"

    @property
    def monitor_url(self) -> str:
        """The address of the server's HTTP monitoring; needs `monitor`."""
        if not self.monitor_port:
            raise ServersError(f"server {self.name} has no monitoring port; start it with monitor=True")
        return f"http://{HOST}:{self.monitor_port}"

    def monitored(self, path: str) -> dict[str, Any]:
        """Return the answer of HTTP monitoring for a path such as `/varz`. Raises OSError while the server is down."""
        # Ignore proxies of the environment, which cannot reach this machine's loopback addresses.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.monitor_url + path, timeout=_ANSWER_LIMIT) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServersError(f"server {self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def died(self) -> bool:
        """Whether the server ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def death(self) -> ServerStartError:
        """Return the error that reports how a server `died`."""
        code = self._process.poll() if self._process else None
        tail = self.log_tail()
        kind = PortTakenError if any(_TAKEN in line for line in tail) else ServerStartError
        return kind(f"server {self.name} ({self.version}) ended on its own with {code}:", tail)

    def log_tail(self, lines: int = 15) -> list[str]:
        """Return the last lines of the log."""
        if not self.log_file.exists():
            return []
        return self.log_file.read_text("utf-8", "replace").splitlines()[-lines:]

    def start(self) -> Self:
        """Start and wait until ready.

        Raises ServerStartError with the last log lines when the server ends first, PortTakenError when the port is one
        that the caller chose and another process uses.
        """
        if self.running:
            raise ServersError(f"server {self.name} is running already")
        for _ in range(_TRIES):
            if self._port_is_ours:
                self._give_up_ports()
                self.port = free_port()
            if self._monitor and (self._port_is_ours or not self.monitor_port):
                self.monitor_port = free_port()
            if _LEAF_PORT in self.config and (self._port_is_ours or not self.leaf_port):
                self.leaf_port = free_port()
            self._keep_ports()
            try:
                self._launch()
            except PortTakenError:
                if not self._port_is_ours:
                    raise
            else:
                self._port_is_ours = False  # clients know it now, so a restart keeps it
                return self
        raise PortTakenError(f"server {self.name}: {_TRIES} ports in a row were taken by others")

    def stop(self) -> None:
        """Ask the server to end (SIGTERM), and wait for it. The store stays. Does nothing if it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server at once (SIGKILL), like a crash. The store stays as it is."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the server, and give up its ports and its temporary directory."""
        super().close()
        self._give_up_ports()

    def interrupt(self) -> None:
        """Kill the process. A `start` that waits for it in another thread then fails."""
        if self._process is not None:
            self._process.kill()

    def restart(self, *, kill: bool = False) -> Self:
        """Stop (or kill) and start again on the same port and store."""
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        return self.start()

    def upgrade(self, version: str) -> Self:
        """Stop, and start another version on the same port and store, as an upgrade in place does."""
        self.stop()
        self.binary = fetch(version)
        self.version = version_of(self.binary)
        return self.start()

    def _command(self) -> list[str]:
        config_file = self.directory / "server.conf"
        config_file.write_text(self.config, "utf-8")
        named = {"-c": config_file, "-a": HOST, "-p": self.port, "-n": self.name, "-l": self.log_file}
        command = [str(self.binary), *(str(word) for pair in named.items() for word in pair)]
        if self.jetstream:
            command += ["-js", "-sd", str(self.store_dir)]
        if self._monitor:
            command += ["-m", str(self.monitor_port)]
        return command

    def _launch(self) -> None:
        logged_before = self.log_file.stat().st_size if self.log_file.exists() else 0
        # The server reports a refused configuration on stderr before the log exists, so both go into the same file.
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, _LEAF_PORT[1:]: str(self.leaf_port)},
            )
        _running.add(self)
        deadline = time.monotonic() + READY_LIMIT
        with self.log_file.open("rb") as log:
            log.seek(logged_before)
            said = b""
            while True:
                ended = self._process.poll() is not None  # checked before reading, to read its last output as well
                said += log.read()
                if _READY in said and not ended:
                    return
                if ended:
                    death = self.death()
                    self._forget()
                    raise death
                if time.monotonic() > deadline:
                    self.kill()
                    raise ServerStartError(
                        f"server {self.name} ({self.version}) was not ready after {READY_LIMIT:g} s:",
                        self.log_tail(),
                    )
                time.sleep(_POLL)

    def _keep_ports(self) -> None:
        # Linux lets several sockets with this option have an address, as long as one of them listens.
        if sys.platform != "linux" or self._kept_ports:
            return
        for port in filter(None, (self.port, self.monitor_port, self.leaf_port)):
            with socket.socket() as kept, contextlib.suppress(OSError):  # a server that does not get it says so
                kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                kept.bind((HOST, port))
                self._kept_ports.append(kept.detach())

    def _give_up_ports(self) -> None:
        while self._kept_ports:
            os.close(self._kept_ports.pop())

    def _end(self, signal_number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            os.kill(process.pid, signal_number)
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._forget()

    def _forget(self) -> None:
        self._process = None
        _running.discard(self)


@atexit.register
def _close_all() -> None:
    # A program that ends without leaving its context managers must not leave servers running.
    for server in list(_running):
        server.kill()
