"""The plug-ins: sensors, runtimes, generators and decoders, in the words of their data sheets."""

import inspect
import re
from collections.abc import Iterable, Mapping
from pkgutil import resolve_name

from edgemeter.agent import generators, power, runtimes
from edgemeter.agent.base.untried import untried_part
from edgemeter.agent.vision import decoders
from tools.reference.tables import anchor, table

SENSORS = """# Plug-ins

[Write your own](../tasks/plug-ins.md) in one file. Those below ship with Edgemeter.

## Sensors

`edgemeter energy sensors` shows the power sensors of your machine. A run uses the one with the
widest scope, unless you name others with `--power`. The scope is what a sensor measures. From wide
to narrow, scopes are `wall-ac` (a plug, with the loss in the power supply), `board-input` (all that
the board draws, USB devices included), `module`, `soc-rails`, `cpu-package` and `gpu-board`.

The [sample configuration](samples/agent.toml) has a table `[sensors.NAME]` for each sensor with
settings. The keys `gain`, `gain_u_ratio`, `gain_drift_ratio` and `delay_ms` work for [any
sensor](../tasks/energy.md).

"""
RUNTIMES = """
## Runtimes

The file's suffix chooses the runtime, unless you give `--runtime`. Choose a backend with
`--backend`, and change settings with `--option KEY=VALUE` (`options` in a suite). Nobody has
[tried](../install.md#what-was-tried) the backends in the last column on their hardware.

"""
GENERATORS = """
## Generators

A generator runs a language model. You choose it, its backend and its settings like a runtime's.
"""
DECODERS = """
## Decoders

A decoder turns output tensors into boxes, masks or keypoints. It is recognised from the outputs, or
named by `family` in the [model card](configuration.md#the-model-card).

"""
# Where a data sheet goes on for makers: files of the kernel, protocols, sources, and what it was
# tested with.
FOR_MAKERS = re.compile(r"^(Where|Timing|Protocol|Source|Tested with):.*", re.MULTILINE | re.DOTALL)
# The example of a sensor's table, which the sample configuration has.
EXAMPLE = re.compile(r"^ +\[sensors\..*?(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)


def page() -> str:
    """Return the page: of each family a table, then the data sheets that say more."""
    sensors = (
        (_name(name, power.SENSORS), _title(address), _keys(power.defaults(name)))
        for name, address in power.SENSORS.items()
    )
    runs = (
        (_name(name, runtimes.RUNTIMES), _title(address), _untried(name))
        for name, address in runtimes.RUNTIMES.items()
    )
    families: dict[str, list[str]] = {}
    for name, address in decoders.DECODERS.items():
        families.setdefault(address, []).append(name)
    rows = (
        (", ".join(f"`{name}`" for name in names), _title(address))
        for address, names in families.items()
    )
    return "".join([
        SENSORS, table(["sensor", "what it reads", "settings"], sensors), *_sheets(power.SENSORS),
        RUNTIMES, table(["runtime", "what it runs", "untried"], runs), *_sheets(runtimes.RUNTIMES),
        GENERATORS, *_sheets(generators.GENERATORS, with_title=True), DECODERS,
        table(["family", "outputs"], rows),
    ])  # fmt: skip


def _sheets(plug_ins: Mapping[str, str], *, with_title: bool = False) -> Iterable[str]:
    for name, address in plug_ins.items():
        if sheet := _sheet(address):
            title = f"{_title(address)}\n\n" if with_title else ""
            yield f"\n### {name}\n\n{title}{sheet}\n"


def _text(address: str) -> str:
    return inspect.cleandoc(resolve_name(address.partition(":")[0]).__doc__ or "")


def _title(address: str) -> str:
    """Return the first paragraph of a data sheet."""
    return " ".join(_text(address).partition("\n\n")[0].split())


def _sheet(address: str) -> str:
    """Return the rest of it without the part for makers; empty if that is all."""
    return EXAMPLE.sub("", FOR_MAKERS.sub("", _text(address).partition("\n\n")[2])).strip()


def _name(name: str, plug_ins: Mapping[str, str]) -> str:
    return f"[`{name}`](#{anchor(name)})" if _sheet(plug_ins[name]) else f"`{name}`"


def _untried(name: str) -> str:
    part = untried_part(name)
    return "all" if part == ", untried" else part.removeprefix(", untried: ") or "-"


def _keys(keys: Mapping[str, str]) -> str:
    return (
        ", ".join(f"`{key}={value}`" if value else f"`{key}`" for key, value in keys.items()) or "-"
    )
