"""From what was given to a configuration: every wrong value becomes a fault, or a warning and its safe default.

Settings marked ``optional`` warn and fall back when the environment or the file holds nonsense, because old units set
them so (REFERENCE 8.3). The same nonsense typed as a flag stops: somebody is there to read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from plaita.runtime_config.secrets import shown
from plaita.runtime_config.settings import ConnectionConfig, Setting
from plaita.runtime_config.sources import Collector, Given

Config = TypeVar("Config", bound=ConnectionConfig)


def _switch(given: Given, setting: Setting, collect: Collector) -> bool | None:
    """The value of a yes/no setting as its field means it; None = not said (a warning or fault has been noted)."""
    value: object = given.value
    if given.rank in (0, 3) and isinstance(value, bool):
        return value
    if value in ("1", "0", ""):
        return (value == "1") != setting.inverted
    message = f"{given.source}: {shown(value, setting)} is neither; right is {setting.right}"
    if setting.optional:
        collect.warnings.append(f"{message}; taken as 0")
        return False
    collect.faults.append(message)
    return None


def _clamp(given: Given, setting: Setting, collect: Collector) -> Any:
    """Numbers outside ``low``..``high`` are pulled to the bound with a warning; everything else passes as it is."""
    try:
        number = float(given.value)
    except (TypeError, ValueError, OverflowError):
        return given.value
    bound = setting.low if setting.low is not None and number < setting.low else None
    bound = setting.high if setting.high is not None and number > setting.high else bound
    if bound is None or number in (float("inf"), float("-inf")):
        return given.value
    bound = int(bound) if float(bound).is_integer() else bound
    collect.warnings.append(f"{given.source}: {shown(given.value, setting)}; right is {setting.right}; {bound} is used")
    return bound


def prepare(settings: Mapping[str, Setting], collect: Collector) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, given in collect.given.items():
        setting = settings[name]
        if setting.switch:
            value: Any = _switch(given, setting, collect)
            if value is None:
                continue
        else:
            value = _clamp(given, setting, collect)
        values[name] = value
    return values


def _reason(error: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return str(error["msg"])[:1].lower() + str(error["msg"])[1:]


def build(
    model: type[Config], values: dict[str, Any], settings: Mapping[str, Setting], collect: Collector
) -> Config | None:
    """The model of the values. Optional ones that do not fit are dropped with a warning, others noted as faults."""
    for _attempt in range(2):
        try:
            return model.model_validate(values)
        except ValidationError as error:
            for name, detail in {str(item["loc"][0]): item for item in reversed(error.errors())}.items():
                setting = settings[name]
                given = collect.given.get(name, Given(values.get(name), f"default of {name}", 2))
                message = f"{given.source}: {shown(given.value, setting)}: {_reason(detail)}; right is {setting.right}"
                if setting.optional and given.rank != 3:
                    default = model.model_fields[name].default
                    collect.warnings.append(f"{message}; the default {default!r} is used")
                else:
                    collect.faults.append(message)
                values.pop(name, None)
    return None
