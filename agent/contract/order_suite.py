"""A suite that came with an order: read more strictly than one that a person wrote here.

It may name models of the order and models that ship with the agent, and photographs of the order, each by file name; no path, no folder,
no setting of a library (those can be paths), no key, and no code. Whatever is not known refuses all of it.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Annotated

import msgspec

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.types import Name, Sha256
from edgemeter.agent.contract import suite as contract_suite
from edgemeter.agent.contract.case_settings import AccuracyWhen, Depth, ModeName, Rate, Scenario, Settings, Threads, Tokens
from edgemeter.agent.contract.data_archive import DataFolder
from edgemeter.agent.contract.model_formats import PYTHON
from edgemeter.agent.contract.orders import FileName
from edgemeter.agent.contract.record_conditions import Role
from edgemeter.agent.contract.suite import Case, Suite, SuiteFile

LARGEST_BYTES = 256 << 10
MOST_CASES = 1000
SERVERS = ("server", "served")  # Their model is a file with an address, and the path of a key that is sent there.
SHIPPED = Path(__file__).resolve().parents[2] / "models" / "shipped"  # Shipped with the agent, in the package beside it.
CODE = "a factory in Python is code, which no order carries: name it in a suite on the board itself"
# {precision} is replaced, as in any suite.
_MODEL = r"^[A-Za-z0-9]([A-Za-z0-9._-]|\{precision\}){0,127}\Z"
_WORD = r"^[A-Za-z0-9][A-Za-z0-9_.:,+-]{0,63}\Z"
# A single one is checked after reading: a pattern in a union with a list lets the interpreter crash as it ends (msgspec #717).
Model = str | list[Annotated[str, msgspec.Meta(pattern=_MODEL)]]
Word = str | list[Annotated[str, msgspec.Meta(pattern=_WORD)]]
_PATTERNS = {"model": _MODEL, "runtime": _WORD, "backend": _WORD, "precision": _WORD}


class OrderedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a `[[case]]` or `[defaults]` in an order: those of a suite that name nothing on this board."""

    model: Model | None = None
    sha256: Sha256 | None = None
    name: Name | None = None
    runtime: Word | None = None
    backend: Word | None = None
    precision: Word | None = None
    threads: Threads | list[Threads] | None = None
    prompt_tokens: Tokens | list[Tokens] | None = None
    depth_tokens: Depth | list[Depth] | None = None
    output_tokens: Tokens | list[Tokens] | None = None
    scenario: Scenario | None = None
    samples_per_query: int | None = None
    batch: int | None = None
    rate_per_s: Rate | list[Rate] | None = None
    mode: ModeName | None = None
    minutes: float | None = None
    repeats: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    queries: int | None = None
    seconds: float | None = None
    idle_seconds: float | None = None
    cpus: list[int] | None = None
    start_below_c: float | None = None
    cool_down_limit_s: float | None = None
    images: FileName | None = None
    reader: Word | None = None
    subset: int | None = None
    corrupt: list[Annotated[str, msgspec.Meta(pattern=_WORD)]] | None = None
    accuracy: AccuracyWhen | None = None
    keep_predictions: bool | None = None
    reference_accuracy: float | None = None
    gate: float | None = None
    agreement: AccuracyWhen | None = None
    role: Role | None = None
    estimate_power_w: float | None = None
    seed: int | None = None


class OrderedSuite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document."""

    name: Name
    case: Annotated[list[OrderedSettings], msgspec.Meta(min_length=1, max_length=MOST_CASES)]
    defaults: OrderedSettings = OrderedSettings()


def read(document: bytes) -> OrderedSuite:
    """Return the suite in `document`; raises ConfigError if it is none, or holds what an order may not."""
    if len(document) > LARGEST_BYTES:
        raise ConfigError(f"the ordered suite has {len(document)} bytes, at most {LARGEST_BYTES} are taken")
    try:
        suite = msgspec.toml.decode(document, type=OrderedSuite)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"the ordered suite is refused: {error} (an order names models by file name, and no path, folder or library setting)"
        ) from error
    for case in (suite.defaults, *suite.case):
        _check(case, suite.defaults)
    return suite


def is_code(model: str | list[str] | None, runtime: str | list[str] | None) -> bool:
    """Return whether one of these models or runtimes stands for code in Python, which no order carries."""
    models, runtimes = ([value] if isinstance(value, str) else value or [] for value in (model, runtime))
    return PYTHON in runtimes or any(python_target.parse(value) or value.endswith(".py") for value in models)


def expand(suite: OrderedSuite, models: Mapping[FileName, Path], folder: Path, data: Mapping[FileName, DataFolder] | None = None) -> Suite:
    """Return the cases; the models stand in `folder` by their names (as links), which is made for this.

    Raises:
        ConfigError: a case names a model that is neither in the order nor shipped, or photographs that are not in the order, or leaves
            nothing to measure.
    """
    for name, path in models.items():
        (folder / name).symlink_to(path.resolve())
    written = SuiteFile(name=suite.name, case=[_plain(case) for case in suite.case], defaults=_plain(suite.defaults))
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
    return msgspec.structs.replace(case, data=str(folder.images), annotations=str(folder.annotations) if folder.annotations else None)


def _link_shipped(path: Path) -> None:
    if not (SHIPPED / path.name).is_file():
        shipped = ", ".join(sorted(model.name for model in SHIPPED.glob("*") if model.suffix != ".toml"))
        raise ConfigError(f"unknown model {path.name!r}: it is not one of the order's models, nor a shipped one ({shipped})")
    for name in (path.name, f"{path.name}.toml"):
        if (SHIPPED / name).is_file() and not (path.parent / name).exists():
            (path.parent / name).symlink_to(SHIPPED / name)


def _plain(case: OrderedSettings) -> Settings:
    try:
        # On the wire the key keeps its name: devices of earlier releases read it.
        return msgspec.convert(
            {contract_suite.FORMER_KEYS.get(key, key): value for key, value in contract_suite.set_keys(case).items()}, Settings
        )
    except msgspec.ValidationError as error:
        raise ConfigError(f"the ordered suite is refused: {error}") from error


def _check(case: OrderedSettings, defaults: OrderedSettings) -> None:
    """Refuse code, a name that is none, and a case that stands for too many."""
    if is_code(case.model, case.runtime):
        raise ConfigError(f"the ordered suite is refused: {CODE}")
    for key, pattern in _PATTERNS.items():
        value = getattr(case, key)
        if isinstance(value, str) and not re.match(pattern, value):
            raise ConfigError(
                f"the ordered suite is refused: {value!r} as {key} (an order names models by file name, and no path or folder)"
            )
    values = [getattr(case, key, None) or getattr(defaults, key, None) for key in ("model", *contract_suite.AXES)]
    count = prod(len(value) for value in values if isinstance(value, list))
    if count > MOST_CASES:
        raise ConfigError(f"the ordered suite is refused: a case stands for {count} combinations, at most {MOST_CASES} are taken")
