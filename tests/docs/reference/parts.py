"""The plug-ins: sensors, runtimes and decoders, each in the words of its data sheet."""

import inspect
import re
from collections.abc import Mapping
from pkgutil import resolve_name
from types import ModuleType

from edgemeter.agent import generators, power, runtimes
from edgemeter.agent.base.untried import untried_part
from edgemeter.agent.contract.model_formats import FORMATS, READERS
from edgemeter.agent.vision import decoders
from tests.docs.reference.tables import anchor, table

SENSORS_HEAD = """# Power sensors

`edgemeter energy sensors` shows which of them are on this machine; the one with the widest scope is used unless `--power NAME` or `power`
in the configuration names others. The source of each, `agent/power/NAME.py`, begins with its whole data sheet. The keys `gain`,
`gain_u_ratio`, `gain_drift_ratio` and `delay_ms` work for [any sensor](../tasks/energy.md#what-you-know-of-a-sensor). For two sensors of
one kind, name the tables yourself and add `type = "NAME"`.

"""
RUNTIMES_HEAD = """# Runtimes

You choose a runtime by the file's suffix or `--runtime`, a backend by `--backend`, and settings by `--option KEY=VALUE` (`options` of a
suite's case). What is [untried](../boards.md) never ran on its hardware.

"""
GENERATORS_HEAD = """# Generators

A generator generates text from a language model. You choose it and its settings as you choose [a runtime](runtimes.md).

"""
DECODERS_HEAD = """# Decoders

A decoder turns output tensors into the objects found: boxes and, by family, masks or keypoints. It is recognised from the
outputs, or named by `family` in the model's card (`MODEL.toml` beside the model).

"""


def sensors_page() -> str:
    """Return the page of sensors: an overview, then the data sheets."""
    modules = {name: _module(address) for name, address in power.SENSORS.items()}
    rows = [(f"[`{name}`](#{anchor(name)})", _first(modules[name].__doc__), _codes(power.defaults(name))) for name in modules]
    text = SENSORS_HEAD + table(["sensor", "what it reads", "keys"], rows)
    return text + "".join(f"\n## {name}\n\n{_after_first(module)}\n" for name, module in modules.items())


def _untried(name: str) -> str:
    part = untried_part(name).removeprefix(", ")
    return f" {part.capitalize()}." if part else ""


def runtimes_page() -> str:
    """Return the page of runtimes."""
    suffixes = {name: [f"`{suffix}`" for suffix in FORMATS if name in READERS[suffix]] for name in runtimes.RUNTIMES}
    rows = [
        (f"[`{name}`](#{anchor(name)})", ", ".join(suffixes[name]), f"{_first(_module(address).__doc__)}{_untried(name)}")
        for name, address in runtimes.RUNTIMES.items()
    ]
    text = RUNTIMES_HEAD + table(["runtime", "reads", "what it is"], rows)
    return text + "".join(f"\n## {name}\n\n{_after_first(_module(address))}\n" for name, address in runtimes.RUNTIMES.items())


def generators_page() -> str:
    """Return the page of generators."""
    rows = [(f"[`{name}`](#{anchor(name)})", _first(_module(address).__doc__)) for name, address in generators.GENERATORS.items()]
    text = GENERATORS_HEAD + table(["generator", "what it is"], rows)
    return text + "".join(f"\n## {name}\n\n{_after_first(_module(address))}\n" for name, address in generators.GENERATORS.items())


def decoders_page() -> str:
    """Return the page of decoders: an overview, then their words, those of one module together."""
    by_module: dict[str, list[str]] = {}
    for name, address in decoders.DECODERS.items():
        by_module.setdefault(address.partition(":")[0], []).append(name)
    rows = [
        (", ".join(f"[`{name}`](#{anchor(', '.join(names))})" for name in names), _first(_module(f"{module}:").__doc__))
        for module, names in by_module.items()
    ]
    text = DECODERS_HEAD + table(["family", "outputs"], rows)
    return text + "".join(f"\n## {', '.join(names)}\n\n{_after_first(_module(f'{module}:'))}\n" for module, names in by_module.items())


def _module(address: str) -> ModuleType:
    module: ModuleType = resolve_name(address.partition(":")[0])
    return module


# Ends of a part of a data sheet that only makers of readers need: where the kernel has the files, what the device sends, sources, what it
# was tested with.
FOR_MAKERS = re.compile(
    r"""^Where:.*?(?=^[A-Z][a-z ]+:|^$|\Z)
    |(?:^|(?<=\.[ ]))(?:Protocol:|Source|Tested|Contract-tested).*?(?=^$|\Z)""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)


def _sheet(words: str | None) -> str:
    """Return a data sheet without what only makers of readers need."""
    return re.sub(r"\n{3,}", "\n\n", FOR_MAKERS.sub("", inspect.cleandoc(words or ""))).strip()


def _after_first(module: ModuleType) -> str:
    """Return the data sheet after its first sentence, which the overview has; of a replay, whose format is for tests, where it is."""
    if module.__name__.endswith(".replay") and ".power." not in module.__name__:
        return f"The format is in `{module.__name__.removeprefix('edgemeter.').replace('.', '/')}.py`."
    return _sheet(module.__doc__).partition("\n\n")[2]


def _first(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def _codes(keys: Mapping[str, str]) -> str:
    return ", ".join(f"`{key}={value}`" if value else f"`{key}`" for key, value in keys.items()) or "none"
