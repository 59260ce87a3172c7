"""The engine of `transforms` as a test subject: it runs cases against a model of a stream account."""

from nats_conformance.catalogue.case import Case
from nats_conformance.identity import Identity
from nats_conformance.implementations.account_model import AccountModel
from nats_conformance.implementations.engine_operations import EngineOperations, TransformsEngine
from nats_conformance.observation import Observation
from nats_conformance.subject import CannotPlay, SingleSubject
from nats_transforms.dialect import server_dialect
from nats_transforms.tested_versions import Version


class EngineSubject(SingleSubject):
    """An engine in the dialect of a version. A minor line without a dialect is expected to behave like the newest one.

    Args:
        version: a full version, such as `2.10.27`.
        engine: an engine to use instead of that of `transforms`.
    """

    def __init__(self, version: str, engine: EngineOperations | None = None) -> None:
        self._dialect = server_dialect(version)
        self._engine = engine or TransformsEngine(self._dialect)
        self.identity = Identity("engine", version)

    async def play(self, case: Case) -> Observation:
        """Run a case on a new account."""
        refuse_unplayable(case, self._dialect.version)
        return await AccountModel(self._engine, self._dialect).play(case)


def refuse_unplayable(case: Case, version: Version) -> None:
    """Raise CannotPlay for cases that need a server."""
    if case.scenario is not None:
        raise CannotPlay("a scenario needs servers")
    if "store" in case.needs:
        raise CannotPlay("what a stream keeps decides, which an engine does not know")
    if case.harms_server(version):
        raise CannotPlay("the state of a server decides, and an engine is none")
