"""A suite that came with an order: read more strictly than one that a person wrote here.

It may name models of the order and models that ship with the agent, and photographs of the order, each by file name; no path, no folder,
no setting of a library (those can be paths), no key, and no code. Whatever is not known refuses all of it.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
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
from edgemeter.agent.contract.data_archive import DataFolder
from edgemeter.agent.contract.model_formats import PYTHON
from edgemeter.agent.contract.orders import FILE_NAME, FileName
from edgemeter.agent.contract.suite import Case, Suite, SuiteFile

LARGEST_BYTES = 256 << 10
MOST_CASES = 1000
SERVERS = ("server", "served")  # Their model is a file with an address, and the path of a key that is sent there.
SHIPPED = Path(__file__).resolve().parents[2] / "models" / "shipped"  # Shipped with the agent, in the package beside it.
ONLY_NAMES = "an order names models by file name, and no path, folder or library setting"
CODE = "a factory or plug-in in a file of Python is code, which no order carries: name it in a suite on the board itself"
# {precision} is replaced, as in any suite.
_MODEL = r"^[A-Za-z0-9]([A-Za-z0-9._-]|\{precision\}){0,127}\Z"
_WORD = r"^[A-Za-z0-9][A-Za-z0-9_.:,+-]{0,63}\Z"
# The keys of a `[[case]]` or of `[defaults]` in an order: those of a suite that name nothing on this board.
KEYS = frozenset(
    {
        "model", "sha256", "name", "runtime", "backend", "precision", "threads", "prompt_tokens", "output_tokens",
        "scenario", "samples_per_query", "batch", "rate_per_s", "mode", "minutes", "repeats", "queries", "seconds", "idle_seconds", "cpus",
        "start_below_c", "cool_down_limit_s", "data", "reader", "subset", "accuracy", "reference_accuracy",
        "gate", "agreement", "role", "estimate_power_w", "seed", "deadline", "queue_frames", "together", "power_mode", "governor",
        "cpu_max_hz", "gpu_max_hz", "memory_max_hz",
    }
)  # fmt: skip
# What a text in a key matches, in a list each.
_PATTERNS = {
    "model": _MODEL,
    "data": FILE_NAME,
    **dict.fromkeys(("runtime", "backend", "precision", "reader", "power_mode", "governor"), _WORD),
}


class OrderedSuite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document; the keys of its cases are checked one by one."""

    name: Name
    case: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=MOST_CASES)]
    defaults: dict[str, Any] = {}


def read(document: bytes) -> SuiteFile:
    """Return the suite in `document`; raises ConfigError if it is none, or holds what an order may not."""
    if len(document) > LARGEST_BYTES:
        raise ConfigError(f"the ordered suite has {len(document)} bytes, at most {LARGEST_BYTES} are taken")
    try:
        suite = decode_toml(document, OrderedSuite)
        defaults = _settings(suite.defaults, "defaults")
        cases = [_settings(case, f"case {number}") for number, case in enumerate(suite.case, 1)]
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the ordered suite is refused: {error} ({ONLY_NAMES})") from error
    for case in (defaults, *cases):
        _check(case, defaults)
    return SuiteFile(name=suite.name, case=cases, defaults=defaults)


def _settings(written: Mapping[str, Any], where: str) -> Settings:
    if unknown := written.keys() - KEYS:
        raise msgspec.ValidationError(f"{where}: Object contains unknown field `{min(unknown)}`")
    try:
        return msgspec.convert(written, Settings)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{where}: {error}") from error


def is_code(model: str | list[str] | None, runtime: str | list[str] | None) -> bool:
    """Return whether one of these models or runtimes stands for code in Python, which no order carries."""
    models, runtimes = ([value] if isinstance(value, str) else value or [] for value in (model, runtime))
    return PYTHON in runtimes or any(python_target.parse(value) or value.endswith(".py") for value in (*models, *runtimes))


def expand(written: SuiteFile, models: Mapping[FileName, Path], folder: Path, data: Mapping[FileName, DataFolder] | None = None) -> Suite:
    """Return the cases; the models stand in `folder` by their names (as links), which is made for this.

    Raises:
        ConfigError: a case names a model that is neither in the order nor shipped, or photographs that are not in the order, or leaves
            nothing to measure.
    """
    for name, path in models.items():
        (folder / name).symlink_to(path.resolve())
    suite_of_order = contract_suite.expand(written, folder)
    for case in suite_of_order.cases:
        path = Path(case.model)
        if is_code(case.model, case.runtime):
            raise ConfigError(f"the ordered suite is refused: {CODE}")
        if path.parent != folder:
            raise ConfigError(f"the ordered suite is refused: {case.model!r} is not a file name")
        if case.runtime in SERVERS:
            raise ConfigError(
                "the ordered suite is refused: a server is none of an order's models, for its file names an address and a key"
            )
        if not path.exists():
            _link_shipped(path)
    return replace(suite_of_order, cases=tuple(_with_data(case, data or {}) for case in suite_of_order.cases))


def _with_data(case: Case, data: Mapping[FileName, DataFolder]) -> Case:
    if case.data is None:
        return case
    name = Path(case.data).name
    if name not in data:
        raise ConfigError(f"unknown photographs {name!r}: they are not among the order's ({', '.join(sorted(data)) or 'it has none'})")
    folder = data[name]
    annotations = str(folder.annotations) if folder.annotations else None
    return msgspec.structs.replace(case, data=str(folder.images), annotations=annotations)


def _link_shipped(path: Path) -> None:
    if not (SHIPPED / path.name).is_file():
        shipped = ", ".join(sorted(model.name for model in SHIPPED.glob("*") if model.suffix != ".toml"))
        raise ConfigError(f"unknown model {path.name!r}: it is not one of the order's models, nor a shipped one ({shipped})")
    for name in (path.name, f"{path.name}.toml"):
        if (SHIPPED / name).is_file() and not (path.parent / name).exists():
            (path.parent / name).symlink_to(SHIPPED / name)


def _check(case: Settings, defaults: Settings) -> None:
    """Refuse code, a name that is none, what may be as large as it likes, and a case that stands for too many."""
    if is_code(case.model, case.runtime):
        raise ConfigError(f"the ordered suite is refused: {CODE}")
    for key, pattern in _PATTERNS.items():
        value = getattr(case, key)
        for text in [value] if isinstance(value, str) else value or ():
            if not re.match(pattern, text):
                raise ConfigError(f"the ordered suite is refused: {text!r} as {key} ({ONLY_NAMES})")
    if (case.repeats or 0) > MOST_CASES or case.rate_per_s == "auto":
        raise ConfigError(f"the ordered suite is refused: an order states its rates, and at most {MOST_CASES} repeats")
    values = [getattr(case, key) or getattr(defaults, key) for key in ("model", *contract_suite.AXES)]
    count = prod(len(value) for value in values if isinstance(value, list))
    if count > MOST_CASES:
        raise ConfigError(f"the ordered suite is refused: a case stands for {count} combinations, at most {MOST_CASES} are taken")
