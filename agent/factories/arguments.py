"""Options of factories: what a text such as `input=1x3x224x224` or `fullgraph=yes` means, and the files that one names."""

import re
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError, one_line
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.runtimes import TensorInfo

# NAME=SHAPE:DTYPE<LIMIT, of which name, dtype and limit may be left out; a size of `?` is open.
_INPUT = re.compile(r"(?:(?P<name>[^=,:]+)=)?(?P<shape>(?:\d+|\?)(?:x(?:\d+|\?))*|scalar)(?::(?P<dtype>[a-z]+\d*)(?:<(?P<limit>\d+))?)?")
_SWITCH = {"yes": True, "no": False}
# 1 of what is attended to.
_MASKS = ("attention_mask", "mask")


def parse_inputs(text: str) -> tuple[TensorInfo, ...]:
    """Return the inputs that `input=1x3x224x224` declares, or `input=ids=1x8:int64<1000,mask=1x8:int64`; raises ConfigError.

    Noise draws integers below the limit, those of a mask without one are 1.
    """
    infos = []
    entries = [entry.strip() for entry in text.split(",")]
    for index, entry in enumerate(entries):
        match = _INPUT.fullmatch(entry)
        if match is None:
            raise ConfigError(f"input={text!r} is no shape: give e.g. input=1x3x224x224, or input=ids=1x8:int64<1000,mask=1x8:int64")
        shape = () if match["shape"] == "scalar" else tuple(None if size == "?" else int(size) for size in match["shape"].split("x"))
        name, dtype = match["name"] or ("input" if len(entries) == 1 else f"input_{index}"), match["dtype"] or "float32"
        is_integer = dtype.startswith(("int", "uint"))
        if match["limit"] and (not is_integer or not int(match["limit"])):
            raise ConfigError(f"input={text!r}: a limit is of integers, and above 0: give e.g. input=ids=1x8:int64<1000")
        noise_range = (0, int(match["limit"]) - 1) if match["limit"] else (1, 1) if is_integer and name in _MASKS else None
        infos.append(TensorInfo(name, shape, dtype, noise_range=noise_range))
    return tuple(infos)


def parse_switch(name: str, text: str) -> bool:
    """Return whether an option is `yes`; raises ConfigError if it is neither that nor `no`."""
    return _SWITCH[one_of(name, text, _SWITCH)]


def one_of(name: str, text: str, choices: Collection[str]) -> str:
    """Return `text` if it is one of `choices`; raises ConfigError with the nearest."""
    if text not in choices:
        raise ConfigError(f"{name}={text!r} is none of its values: {near(text, choices)}")
    return text


def existing(name: str, text: str | Path) -> Path:
    """Return the file or folder that an option names; raises ConfigError if it is absent."""
    path = Path(text).expanduser()
    if not path.exists():
        raise ConfigError(f"{name}={str(text)!r} does not exist: name a file or folder of this machine")
    return path.absolute()


def mapped(tried: str, function: Callable[[], Any], remedy: str) -> Any:
    """Return what a library's or the user's code returns; raises ConfigError with what was tried in place of whatever it raises."""
    try:
        return function()
    except EdgemeterError:
        raise
    except Exception as error:  # user code and five libraries may raise anything
        raise ConfigError(f"{tried} failed: {type(error).__name__}: {one_line(error)}; {remedy}") from error


def import_framework(module: str, install: str) -> Any:
    """Return a framework's module; raises UnavailableError with the command that installs it, or with why it cannot be imported."""
    try:
        return import_module(module)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
        why = "is not installed" if is_absent else f"cannot be imported ({one_line(error)})"
        raise UnavailableError(f"{module} {why}; to install it: {install}") from error


def installed(packages: Sequence[str]) -> tuple[str, ...]:
    """Return those of some distributions that are installed."""
    return tuple(name for name in packages if any(True for _ in distributions(name=name)))
