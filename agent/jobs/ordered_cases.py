"""The cases of an ordered suite: its models as links in one folder, its photographs where they were unpacked."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import suite as contract_suite
from edgemeter.agent.contract.order_suite import SHIPPED
from edgemeter.agent.contract.orders import FileName
from edgemeter.agent.contract.suite import Suite, SuiteFile
from edgemeter.agent.jobs.unpacking import DataFolder

SERVERS = ("server", "served")  # Their model is a file with an address, and the path of a key that is sent there.


def expand(written: SuiteFile, models: Mapping[FileName, Path], folder: Path, data: Mapping[FileName, DataFolder] | None = None) -> Suite:
    """Return the cases of a suite from `order_suite.read`; the models stand in `folder` by their names (as links), which is made for this.

    Raises:
        ConfigError: a case names a model that is neither in the order nor shipped, or photographs that are not in the order, or leaves
            nothing to measure.
    """
    for name, path in models.items():
        (folder / name).symlink_to(path.resolve())
    suite_of_order = contract_suite.expand(written, folder)
    cases = []
    for case in suite_of_order.cases:
        if case.runtime in SERVERS:
            raise ConfigError(
                "the ordered suite is refused: a server is none of an order's models, for its file names an address and a key"
            )
        if not Path(case.model).exists():
            _link_shipped(Path(case.model))
        if case.data is None:
            cases.append(case)
        elif (of_case := (data or {}).get(name := Path(case.data).name)) is None:
            raise ConfigError(
                f"unknown photographs {name!r}: they are not among the order's ({', '.join(sorted(data or ())) or 'it has none'})"
            )
        else:
            annotations = str(of_case.annotations) if of_case.annotations else None
            cases.append(msgspec.structs.replace(case, data=str(of_case.images), annotations=annotations))
    return replace(suite_of_order, cases=tuple(cases))


def _link_shipped(path: Path) -> None:
    if not (SHIPPED / path.name).is_file():
        shipped = ", ".join(sorted(model.name for model in SHIPPED.glob("*") if model.suffix != ".toml"))
        raise ConfigError(f"unknown model {path.name!r}: it is not one of the order's models, nor a shipped one ({shipped})")
    for name in (path.name, f"{path.name}.toml"):
        if (SHIPPED / name).is_file() and not (path.parent / name).exists():
            (path.parent / name).symlink_to(SHIPPED / name)
