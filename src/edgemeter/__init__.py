"""Measure what a model or a function costs on this device.

Six names, and `edgemeter.plugin` for plug-ins.

- `measure(model, data=..., ...)` measures a model, `measure(function, inputs)` a function; both
  return a `Record`.
- `measured` is a decorator that measures a function at its first call.
- `compare(a, b, ...)` measures models in turn and decides which is faster, more accurate and more
  frugal.
- `energy()` is a context that measures the energy of a block of code.
- `load(...)` reads stored runs as columns for pandas and polars.

These names, their parameters and the fields of what they return follow semantic versioning;
everything below `edgemeter.agent`, `edgemeter.collector`, `edgemeter.models` and
`edgemeter.provisioning` is internal. Errors are `edgemeter.plugin.EdgemeterError`.

Nothing is imported before a name is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgemeter._columns import load
    from edgemeter._measuring import Record, compare, measure, measured
    from edgemeter._spent_energy import energy

__all__ = ("Record", "compare", "energy", "load", "measure", "measured")

_PLACES = {
    "Record": "edgemeter._measuring:Record",
    "compare": "edgemeter._measuring:compare",
    "energy": "edgemeter._spent_energy:energy",
    "load": "edgemeter._columns:load",
    "measure": "edgemeter._measuring:measure",
    "measured": "edgemeter._measuring:measured",
    "plugin": "edgemeter.plugin",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pkgutil import resolve_name  # noqa: PLC0415 - until then, Ctrl-C prints a traceback

    attribute = globals()[name] = resolve_name(_PLACES[name])
    return attribute


def __dir__() -> list[str]:
    return sorted(_PLACES)
