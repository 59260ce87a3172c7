"""A native server of a chosen version, or one that runs already, as a subject of test."""

import asyncio
import contextlib
import secrets
from dataclasses import replace
from pathlib import Path

from nats_conformance.catalogue.case import Case
from nats_conformance.errors import SubjectError
from nats_conformance.identity import Identity
from nats_conformance.native_servers import NativeServer
from nats_conformance.observation import Observation
from nats_conformance.raw_client import Credentials, RawClient, shown_address
from nats_conformance.relocation import Relocation, obstacle
from nats_conformance.scenarios import play_scenario
from nats_conformance.scenarios.waiting import has_ended
from nats_conformance.stage import Stage
from nats_conformance.subject import CannotPlay, SingleSubject
from nats_transforms.dialect import dialect
from nats_transforms.errors import UnknownDialectError


def account_config(accounts: int) -> str:
    """Return a server configuration with this many JetStream accounts: user `u0` with password `u0`, and so on."""
    each = "\n".join(
        f"  A{number} {{jetstream: enabled, users: [{{user: u{number}, password: u{number}}}]}}"
        for number in range(accounts)
    )
    return f"accounts {{\n{each}\n}}\n"


class NativeSubject(SingleSubject):
    """A server that the suite starts. Every case runs in an otherwise empty account.

    Args:
        binary: of the server.
        directory: for its store and log.
        at_once: cases that are played at the same time.
    """

    def __init__(self, version: str, binary: Path, directory: Path, *, at_once: int = 8) -> None:
        self.identity = Identity("native", version)
        self.at_once = at_once
        self._binary = binary
        self._directory = directory
        self._server = NativeServer(
            binary=binary, config=account_config(at_once), directory=directory / f"native-{version}"
        )
        self._stages: asyncio.Queue[Stage] = asyncio.Queue()

    async def open(self) -> None:
        """Start the server."""
        await self._server.started()
        for number in range(self.at_once):
            user = f"u{number}"
            client = await RawClient.connect(self._server.url, Credentials(user=user, password=user))
            self._stages.put_nowait(Stage(client))

    async def play(self, case: Case) -> Observation:
        """Run a case. One that harms the server runs on a separate server."""
        expectation = case.expected(self.identity.version)
        if case.scenario is not None:
            return await play_scenario(case.scenario, self._binary, self._directory)
        if case.harms_server(self.identity.version):
            return await self._play_alone(case)
        stage = await self._stages.get()
        try:
            return await stage.play(case, expectation)
        finally:
            self._stages.put_nowait(stage)

    async def _play_alone(self, case: Case) -> Observation:
        """Return the state of the server as a fact: `server` is `ended` or `running`."""
        async with NativeServer(binary=self._binary) as server:
            client = await RawClient.connect(server.url)
            seen = Observation()
            try:
                with contextlib.suppress(SubjectError):
                    seen = await Stage(client).play(case, case.expected(self.identity.version))
                ended = await has_ended(server, client)
            finally:
                await client.close()
            return replace(seen, facts={"server": "ended" if ended else "running"})

    async def close(self) -> None:
        """End the server. Its store is deleted with the directory."""
        while not self._stages.empty():
            await self._stages.get_nowait().client.close()
        await asyncio.to_thread(self._server.close)


class RunningServer(SingleSubject):
    """A server with other users: cases are moved to separate streams and subjects, and clean up after themselves.

    Args:
        url: an address such as `nats://127.0.0.1:4222`.
        credentials: of the user.
    """

    def __init__(self, url: str, credentials: Credentials | None = None) -> None:
        self._url, self.address = url, shown_address(url)
        self._credentials = credentials
        self._stage: Stage | None = None
        self.prefix = f"conform-{secrets.token_hex(3)}-"
        self.identity = Identity("native", "2.15")

    async def open(self) -> None:
        """Connect, and learn which version it is."""
        client = await RawClient.connect(self._url, self._credentials)
        version = client.server_version
        try:
            self.identity = Identity("native", dialect(version).name)
        except UnknownDialectError as error:
            await client.close()
            raise SubjectError(f"the server says that its version is {version!r}: {error}") from None
        answer = await client.api("INFO")
        if "error" in answer:
            await client.close()
            raise SubjectError(f"JetStream: {answer['error'].get('description')}")
        self._stage = Stage(client, Relocation(self.prefix))

    async def play(self, case: Case) -> Observation:
        """Run a case, unless it could harm the server or reach streams of others."""
        if case.harms_server(self.identity.version):
            raise CannotPlay("it would harm the server", is_skip=True)
        reason = obstacle(case)
        if reason is not None:
            raise CannotPlay(reason, is_skip=True)
        if self._stage is None:
            raise SubjectError("not connected")
        return await self._stage.play(case, case.expected(self.identity.version))

    async def close(self) -> None:
        """Remove the streams of an interrupted case, and disconnect."""
        if self._stage is None:
            return
        client = self._stage.client
        try:
            for name in await self._own_streams(client):
                await client.api(f"STREAM.DELETE.{name}")
        finally:
            await client.close()

    async def _own_streams(self, client: RawClient) -> list[str]:
        """Return the streams with this suite's prefix. A server returns the names of its streams in pages."""
        found: list[str] = []
        offset = 0
        while True:
            answer = await client.api("STREAM.NAMES", {"offset": offset})
            names = answer.get("streams") or ()
            found += [name for name in names if name.startswith(self.prefix)]
            offset += len(names)
            if not names or offset >= answer.get("total", 0):
                return found
