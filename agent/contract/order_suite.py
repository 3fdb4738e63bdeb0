"""A suite from an order, with stricter rules than a local one.

It names the order's models and photographs, and models shipped with the agent, by file name only:
no paths, folders, settings of a library (they may be paths), keys or code. Anything unknown refuses
the whole suite.
"""

import typing
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Annotated, Any

import msgspec

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_toml
from edgemeter.agent.base.types import Name
from edgemeter.agent.contract import suite as contract_suite
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.model_formats import PYTHON
from edgemeter.agent.contract.orders import FileName
from edgemeter.agent.contract.suite import SuiteFile

LARGEST_BYTES = 256 << 10
MOST_CASES = 1000
# Shipped with the agent, in the package beside it.
SHIPPED = Path(__file__).resolve().parents[2] / "models" / "shipped"
ONLY_NAMES = "an order names models by file name, and no path, folder or library setting"
CODE = (
    "a factory or plug-in in a file of Python is code, which no order carries: name it in a "
    "suite on the board itself"
)
_Word = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:,+-]{0,63}\Z")]
# The keys of `[[case]]` and `[defaults]` in an order: a suite's, except those that name something
# on this board.
KEYS = frozenset(
    {
        "model", "sha256", "name", "runtime", "backend", "threads", "prompt_tokens",
        "output_tokens", "scenario", "batch", "rate_per_s", "mode", "repeats", "time_s",
        "precision_ratio", "seconds", "idle_seconds", "cpus", "data", "subset", "seed", "deadline",
        "together", "power_mode", "governor",
    }
)  # fmt: skip
# Their types, with narrower texts than in a suite.
_TYPES = {
    key: kind
    for key, kind in typing.get_type_hints(Settings, include_extras=True).items()
    if key in KEYS
} | {
    "model": FileName | list[FileName] | None,
    "data": FileName | None,
    "repeats": Annotated[int, msgspec.Meta(ge=1, le=MOST_CASES)] | None,
    **dict.fromkeys(("runtime", "backend", "power_mode", "governor"), _Word | list[_Word] | None),
}
OrderedSettings = msgspec.defstruct(
    "OrderedSettings",
    [(key, kind, None) for key, kind in _TYPES.items()],
    forbid_unknown_fields=True,
)


class OrderedSuite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The suite's document; its cases are `OrderedSettings`."""

    name: Name
    case: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=MOST_CASES)]
    defaults: dict[str, Any] = {}
    matters_ratio: contract_suite.Matters | None = None


def read(document: bytes) -> SuiteFile:
    """Return the suite in `document`.

    Raises:
        ConfigError: it is not a suite, or has anything that an order may not have.
    """
    if len(document) > LARGEST_BYTES:
        raise ConfigError(
            f"the ordered suite has {len(document)} bytes, at most {LARGEST_BYTES} are taken"
        )
    try:
        suite = decode_toml(document, OrderedSuite)
        defaults = _settings(suite.defaults, {}, "defaults")
        cases = [
            _settings(case, suite.defaults, f"case {number}")
            for number, case in enumerate(suite.case, 1)
        ]
    except (msgspec.MsgspecError, ConfigError) as error:
        raise ConfigError(f"the ordered suite is refused: {error} ({ONLY_NAMES})") from error
    return SuiteFile(
        name=suite.name, case=cases, defaults=defaults, matters_ratio=suite.matters_ratio
    )


def _settings(written: Mapping[str, Any], defaults: Mapping[str, Any], where: str) -> Settings:
    try:
        msgspec.convert(written, OrderedSettings)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{where}: {error}") from error
    if is_code(written.get("model"), written.get("runtime")):
        raise ConfigError(CODE)
    values = [written.get(key) or defaults.get(key) for key in ("model", *contract_suite.AXES)]
    if (count := prod(len(value) for value in values if isinstance(value, list))) > MOST_CASES:
        raise ConfigError(
            f"{where} stands for {count} combinations, at most {MOST_CASES} are taken"
        )
    return msgspec.convert(written, Settings)


def is_code(model: str | list[str] | None, runtime: str | list[str] | None) -> bool:
    """Return whether a model or a runtime is Python code, which orders must not contain."""
    models, runtimes = (
        [value] if isinstance(value, str) else value or [] for value in (model, runtime)
    )
    return PYTHON in runtimes or any(
        python_target.parse(value) or value.endswith(".py") for value in (*models, *runtimes)
    )
