"""The keys of a case: their texts and the validation of their values.

The texts are for option help and the sample.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.field_texts import field_texts
from edgemeter.agent.contract import case_settings
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.suite import PATHS, Case

# The keys of a case that a command or a function may set.
CASE_KEYS = tuple(
    key for key in Settings.__struct_fields__ if key not in {"model", "idle_seconds", "together"}
)


@cache
def setting_texts() -> Mapping[str, str]:
    texts = field_texts(case_settings)["Settings"]
    defaults = {field.name: field.default for field in msgspec.structs.fields(Case)}
    for key, text in texts.items():
        default = defaults.get(key)
        if "Default: " not in text and isinstance(default, str | float | int):
            texts[key] = (
                f"{text} Default: {default if isinstance(default, str) else f'{default:g}'}."
            )
    return texts


def checked_settings(values: Mapping[str, Any]) -> Settings:
    """Return the settings of a case by their keys, as a command or a function was given them.

    A key without a value is None, and a file may be a path.

    Raises:
        ConfigError: a value is wrong; the error has the valid choices.
    """
    from edgemeter.agent.base.toml_mistakes import mistakes  # noqa: PLC0415 - the help needs it not

    set_values = {
        key: str(value) if key in PATHS else value
        for key, value in values.items()
        if value is not None
    }
    if wrong := mistakes(set_values, Settings):
        raise ConfigError("; ".join(map(str, wrong)))
    return msgspec.convert(set_values, Settings)
