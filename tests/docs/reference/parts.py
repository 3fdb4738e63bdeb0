"""The plug-ins: sensors, runtimes and decoders, each in the words of its data sheet."""

import inspect
from collections.abc import Mapping
from pkgutil import resolve_name
from types import ModuleType

from edgemeter.agent import generators, power, runtimes
from edgemeter.agent.contract.suite import FORMATS, READERS
from edgemeter.agent.vision import decoders
from tests.docs.reference.tables import anchor, table

SENSORS_HEAD = """# Power sensors

`edgemeter sensors` shows which of them are on this machine; the one with the widest scope is used unless `--power NAME` or `power` in the
configuration names others. All values of `[sensors.NAME]` are texts. For two sensors of one kind, name the tables yourself and add
`type = "NAME"`.

"""
RUNTIMES_HEAD = """# Runtimes

The runtime is chosen by the file's suffix, or by `--runtime`. Settings are `options` of a suite's case.

"""
GENERATORS_HEAD = """# Generators

A generator generates text from a language model. It is chosen by the file's suffix, or by `--runtime`. Settings are `options` of a
suite's case.

"""
DECODERS_HEAD = """# Decoders

A decoder turns output tensors into the objects found: boxes and, by family, masks, keypoints or oriented boxes. It is recognised from the
outputs, or named by `family` in the model's card (`MODEL.toml` beside the model).

"""


def sensors_page() -> str:
    """Return the page of sensors: an overview, then the data sheets, a module's sensors together."""
    rows = [
        (f"[`{name}`](#{anchor(', '.join(_beside(name)))})", _first(power.sensor_class(name).__doc__), _codes(power.defaults(name)))
        for name in power.SENSORS
    ]
    text = SENSORS_HEAD + table(["sensor", "what it reads", "keys"], rows)
    for names in dict.fromkeys(_beside(name) for name in power.SENSORS):
        text += f"\n## {', '.join(names)}\n\n{_words(_module(power.SENSORS[names[0]]))}\n"
        for name in names:
            text += f"\n{_sensor(name, 3 if len(names) > 1 else 0)}"
    return text


def runtimes_page() -> str:
    """Return the page of runtimes."""
    suffixes = {name: [f"`{suffix}`" for suffix in FORMATS if name in READERS[suffix]] for name in runtimes.RUNTIMES}
    rows = [
        (f"[`{name}`](#{anchor(name)})", ", ".join(suffixes[name]), _first(_module(address).__doc__))
        for name, address in runtimes.RUNTIMES.items()
    ]
    text = RUNTIMES_HEAD + table(["runtime", "reads", "what it is"], rows)
    return text + "".join(f"\n## {name}\n\n{_words(_module(address))}\n" for name, address in runtimes.RUNTIMES.items())


def generators_page() -> str:
    """Return the page of generators."""
    rows = [(f"[`{name}`](#{anchor(name)})", _first(_module(address).__doc__)) for name, address in generators.GENERATORS.items()]
    text = GENERATORS_HEAD + table(["generator", "what it is"], rows)
    return text + "".join(f"\n## {name}\n\n{_words(_module(address))}\n" for name, address in generators.GENERATORS.items())


def decoders_page() -> str:
    """Return the page of decoders: an overview, then their words, those of one module together."""
    by_module: dict[str, list[str]] = {}
    for name, address in decoders.DECODERS.items():
        by_module.setdefault(address.partition(":")[0], []).append(name)
    rows = [
        (f"[`{name}`](#{anchor(', '.join(names))})", _first(_module(f"{module}:").__doc__))
        for module, names in by_module.items()
        for name in names
    ]
    text = DECODERS_HEAD + table(["family", "outputs"], rows)
    return text + "".join(f"\n## {', '.join(names)}\n\n{_words(_module(f'{module}:'))}\n" for module, names in by_module.items())


def _sensor(name: str, level: int) -> str:
    rows = [(f"`{key}`", f"`{value}`" if value else "none") for key, value in power.defaults(name).items()]
    text = f"{'#' * level} {name}\n\n" if level else ""
    text += f"{inspect.cleandoc(power.sensor_class(name).__doc__ or '')}\n"
    return text + (f"\nKeys of `[sensors.{name}]`:\n\n{table(['key', 'default'], rows)}" if rows else "")


def _beside(name: str) -> tuple[str, ...]:
    """Return the sensors of the same module."""
    module = power.SENSORS[name].partition(":")[0]
    return tuple(sensor for sensor, address in power.SENSORS.items() if address.partition(":")[0] == module)


def _module(address: str) -> ModuleType:
    module: ModuleType = resolve_name(address.partition(":")[0])
    return module


def _words(module: ModuleType) -> str:
    return inspect.cleandoc(module.__doc__ or "")


def _first(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def _codes(keys: Mapping[str, str]) -> str:
    return ", ".join(f"`{key}`" for key in keys) or "none"
