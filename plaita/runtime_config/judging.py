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
from plaita.runtime_config.sources import FILE, FLAG, Collector, Given

Config = TypeVar("Config", bound=ConnectionConfig)


def _switch(given: Given, setting: Setting, collect: Collector) -> bool | None:
    """The value of a yes/no setting as its field means it; None = not said (a warning or fault has been noted)."""
    value: object = given.value
    if given.rank in (FILE, FLAG) and isinstance(value, bool):
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
    """The model of the values, or None. Optional ones that do not fit are dropped with a warning, others are faults.

    What was given is told first and dropped, then the rest is judged anew: a default that follows from a wrong value
    (the dead letters of a queue without a name) is no fault of its own.
    """
    while True:
        try:
            return model.model_validate(values)
        except ValidationError as error:
            wrong = {str(item["loc"][0]): item for item in reversed(error.errors())}
            given = [name for name in wrong if name in collect.given]
            for name in given or wrong:
                _note(name, wrong[name], settings[name], model, values, collect)
            if not given:
                return None


def _note(
    name: str,
    detail: Mapping[str, Any],
    setting: Setting,
    model: type[ConnectionConfig],
    values: dict[str, Any],
    collect: Collector,
) -> None:
    value = values.pop(name, None)
    given = collect.given.pop(name, Given(value, f"default of {name}", FLAG))
    message = f"{given.source}: {shown(given.value, setting)}: {_reason(detail)}; right is {setting.right}"
    if setting.optional and given.rank != FLAG:
        default = model.model_fields[name].default
        collect.warnings.append(f"{message}; the default {default!r} is used")
    else:
        collect.faults.append(message)
