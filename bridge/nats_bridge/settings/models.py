"""The whole configuration, as frozen models. Reading it from files is `nats_bridge.settings.loading`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, Field, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from nats_bridge.errors import ConfigError
from nats_bridge.settings.base import BucketName, DurableName, Flag, Part, refused
from nats_bridge.settings.connections import Connection
from nats_bridge.settings.rule_tests import RuleTest
from nats_bridge.settings.rules import AnyRule, Rule
from nats_transforms.dialect import NEWEST, Dialect, dialect


class LeadershipSettings(Part):
    """Leases, which let several replicas of this sidecar share its rules."""

    connection: str = Field(default="default", description="connection of the bucket")
    bucket: BucketName = Field(
        default="NATS_BRIDGE", description="key-value bucket for the leases; created if it does not exist"
    )
    ttl: float = Field(
        default=3.0,
        ge=0.5,
        le=600,
        description="seconds without a renewal after which another replica takes over",
    )
    share: Flag = Field(
        default=False,
        description="spread the rules evenly over the replicas, instead of leaving all to the first one",
    )


def _written(value: Any) -> Any:
    if value is None:
        # An empty key is a mistake; only a missing key means no leadership.
        raise refused("must not be empty; use leadership: {} for the defaults")
    return value


_LeadershipField = Annotated[LeadershipSettings | None, BeforeValidator(_written)]
"""The section, or None if it is missing."""


class Telemetry(Part):
    """Traces, which are sent by OTLP."""

    trace: Literal["passthrough", "link", "continue"] = Field(
        default="passthrough",
        description="passthrough: no spans; link: a span per batch; continue: a span per message of a sampled trace",
    )


class Reload(Part):
    """Whether the sidecar reloads its configuration by itself."""

    watch: Flag = Field(default=True, description="reload the file when it changes")


class Http(Part):
    """The sidecar's HTTP server."""

    listen: str = Field(default="127.0.0.1:8322", description="host:port, or an empty string to turn it off")
    hosts: tuple[str, ...] = Field(
        default=(),
        description="additional names to accept in the Host header",
    )
    changes_from: Literal["loopback", "anywhere", "nowhere"] = Field(
        default="loopback",
        description="who may request a reload or a drain: this machine (or pod), any address, or nobody",
    )
    wedged_after: float = Field(
        default=60.0,
        ge=1,
        description="seconds until a wedged rule makes /livez fail",
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port to listen on, or None when HTTP is off. An empty host means all interfaces."""
        if not self.listen:
            return None
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @field_validator("listen")
    @classmethod
    def _listen(cls, value: str) -> str:
        host, colon, port = value.rpartition(":")
        good = colon and port.isascii() and port.isdigit() and int(port) <= 65535
        if value and (not good or any(c.isspace() for c in value) or (":" in host and host[0] + host[-1] != "[]")):
            remedy = 'write "127.0.0.1:8322", ":8322" (any interface) or "" (none)'
            raise refused(f"'{value}' is not host:port; {remedy}")
        return value


_DEFAULT_DIALECT = "2.15"
NATIVE_DIALECT = "native"
"""The dialect of the server that the stream's connection reaches."""


class Log(Part):
    """The sidecar's log, on standard error."""

    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console at a terminal, json elsewhere"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="lowest level to log")


PREFIX: Final = "BRIDGE_"
DELIMITER: Final = "__"
"""The prefix of the names of variables, and the separator of levels in them."""


class Settings(BaseSettings):
    """The configuration of a sidecar."""

    # `nats_bridge.settings.load` reads it from a file, variables and secret files. Made otherwise, it reads nothing.

    model_config = SettingsConfigDict(
        # as in every part
        extra="forbid",
        frozen=True,
        validate_default=False,
        hide_input_in_errors=True,
        defer_build=True,
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
    )

    @classmethod
    def read(cls, *sources: PydanticBaseSettingsSource) -> Self:
        """Read the settings from sources, in order of precedence.

        Raises:
            ValidationError: they are not valid.
        """
        return cls(_build_sources=(sources, {}))  # type: ignore[call-arg]  # mypy knows the fields only

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the arguments of a call, and nothing else."""
        return (init_settings,)

    misplaced: ClassVar[Mapping[str, str]] = {"stream": "write it into a rule"}

    # Defaults that are models are constructed: calling the model would build its validator as this module is imported.

    name: DurableName = Field(
        default="nats-bridge", description="the sidecar's name, which is part of its consumers' names"
    )
    connections: dict[str, Connection] = Field(
        default_factory=lambda: {"default": Connection(servers=("nats://127.0.0.1:4222",))},
        description="connections by name; rules refer to them with `from` and `to`",
    )
    http: Http = Field(default=Http.model_construct(), description="the HTTP server")
    dialect: str = Field(
        default=_DEFAULT_DIALECT,
        description='server version to reproduce, such as "2.15" or "2.10.27"; "native": the version of the connected'
        " server",
    )
    log: Log = Field(default=Log.model_construct(), description="the log")
    leadership: _LeadershipField = Field(
        default=None, description="leases for several replicas; absent: this is the only replica"
    )
    fail_fast: Flag = Field(
        default=False,
        description="exit, instead of trying again, if a rule fails or a server is unreachable at the start",
    )
    reload: Reload = Field(default=Reload.model_construct(), description="reload of this file")
    telemetry: Telemetry = Field(default=Telemetry.model_construct(), description="traces")
    rules: tuple[AnyRule, ...] = Field(default=(), description="the sidecar's work")
    tests: tuple[RuleTest, ...] = Field(
        default=(),
        description="tests of rules, which only nats-bridge check runs",
    )

    def rule_named(self, name: str) -> Rule:
        """Return a rule by its name.

        Raises:
            ConfigError: a rule of that name does not exist.
        """
        rules = {rule.name: rule for rule in self.rules}
        if name not in rules:
            raise ConfigError(f"rule '{name}': not in the configuration; known rules: {', '.join(rules) or 'none'}")
        return rules[name]

    def dialect_of(self, rule: Rule) -> str:
        """Return the rule's dialect or the configuration's, which may be `native`."""
        return rule.dialect or self.dialect

    def offline_dialect_of(self, rule: Rule) -> Dialect:
        """Return the rule's dialect without a server: `native` stands for the newest one."""
        text = self.dialect_of(rule)
        return NEWEST if text == NATIVE_DIALECT else dialect(text)
