"""The configuration's JSON schema."""

from typing import Any, Final

from nats_bridge.settings.loading import SCHEMA_KEY
from nats_bridge.settings.models import Settings
from nats_transforms.tested_versions import NEWEST_PATCHES

SCHEMA_ID: Final = "urn:nats-bridge:configuration"
"""The name of the schema. It is not an address: the schema is part of the program."""

_PYDANTICS_OWN: Final = ("title", "discriminator", "format")
"""Keywords that only repeat names, or that are not in the draft and make strict tools complain."""


def configuration_schema() -> dict[str, Any]:
    """Return the schema of the YAML file (draft 2020-12)."""
    schema = Settings.model_json_schema(by_alias=True, mode="validation")
    schema["required"] = ["rules"]
    _cleaned(schema)
    top = schema["properties"]
    top["rules"]["minItems"] = 1
    top["connections"] |= {"minProperties": 1, "default": {"default": {"servers": ["nats://127.0.0.1:4222"]}}}
    # Null is refused: only an absent key means no leadership.
    top["leadership"] = {"$ref": "#/$defs/LeadershipSettings", "description": top["leadership"]["description"]}
    top[SCHEMA_KEY] = {"description": "location of the schema, for editors", "type": "string"}
    _dialect(top["dialect"])
    for part in schema["$defs"].values():
        if "dialect" in part.get("properties", {}):
            _dialect(part["properties"]["dialect"]["anyOf"][0])
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Configuration of nats-bridge",
    }
    return {**head, **{key: value for key, value in schema.items() if key not in head}}


def _dialect(schema: dict[str, Any]) -> None:
    # Completion suggests the known lines. A full version is valid as well.
    schema["examples"] = ["native", *(f"{major}.{minor}" for major, minor in NEWEST_PATCHES)]


def _cleaned(schema: Any) -> None:
    """Remove keywords that pydantic adds and no editor needs."""
    if isinstance(schema, list):
        for member in schema:
            _cleaned(member)
    elif isinstance(schema, dict):
        for key in _PYDANTICS_OWN:
            if key in schema and not (key == "format" and schema[key] == "date-time") and _is_keyword(key, schema):
                del schema[key]
        for member in schema.values():
            _cleaned(member)


def _is_keyword(key: str, schema: dict[str, Any]) -> bool:
    # A property may have a keyword's name, such as `log.format`.
    return isinstance(schema[key], str) or key == "discriminator"
