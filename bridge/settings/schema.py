"""The configuration's JSON schema."""

from __future__ import annotations

from typing import Any

from bridge.settings.models import Settings

__all__ = ["configuration_schema"]


def configuration_schema() -> dict[str, Any]:
    """The schema of the YAML file (draft 2020-12)."""
    schema = Settings.model_json_schema(by_alias=True, mode="validation")
    schema["required"] = ["rules"]
    _without_titles(schema)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of nats-bridge",
    }
    return {**head, **{key: value for key, value in schema.items() if key not in head}}


def _without_titles(schema: Any) -> None:
    """Drop pydantic's titles, which only repeat the names of models and fields."""
    if isinstance(schema, list):
        for member in schema:
            _without_titles(member)
    elif isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for member in schema.values():
            _without_titles(member)
