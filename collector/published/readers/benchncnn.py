"""benchncnn: the output of ncnn's benchmark program, alone or as in ncnn's benchmark/README.md.

A heading names the device of what follows. The program loads no weights. Not stated: version of ncnn, size of the input, precision
(but for the names that end in `_int8`).
"""

import re
from collections.abc import Mapping
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import whole_number
from edgemeter.collector.published import ReadTable, RowCollector

# Always with two decimals: a line that is cut has fewer.
_NUMBER = r"=\s*(\d+\.\d\d)"
_LINE = re.compile(rf"\s*(\S+)\s+min {_NUMBER}\s+max {_NUMBER}\s+avg {_NUMBER}\s*")
_SETTING = re.compile(r"\s*(loop_count|num_threads|powersave|gpu_device|cooling_down) = (-?)(\d+)\s*")
_HEADING = re.compile(r"#{2,6} (\S.*)")
_CORES = {0: "all cores", 1: "little cores", 2: "big cores"}


class Benchncnn:
    """Reads lines of `name  min = x  max = y  avg = z`, in ms, below their settings."""

    def recognises(self, name: str, text: str) -> bool:  # noqa: ARG002 - the name says nothing
        """Return whether a line is a network's, and one says how often each ran."""
        lines = text.splitlines()
        return any(map(_LINE.fullmatch, lines)) and any(line.strip().startswith("loop_count = ") for line in lines)

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return the mean of each network, with its range."""
        collector, settings, device, has_line = RowCollector(defaults), dict[str, int | None](), None, False
        for number, line in enumerate(text.splitlines(), start=1):
            if heading := _HEADING.fullmatch(line):
                device, settings = heading[1].strip(), {}
            elif setting := _SETTING.fullmatch(line):
                if setting[1] == "loop_count":
                    settings = {}
                settings[setting[1]] = -1 if setting[2] else whole_number(setting[3])
            elif network := _LINE.fullmatch(line):
                has_line = True
                low, high, mean = (float(value) for value in network.groups()[1:])
                collector.add(
                    f"line {number}",
                    model=network[1],
                    device=device,
                    low=low or None,
                    high=high,
                    value=mean,
                    **_facts(network[1], settings),
                )
            elif " avg = " in line:
                collector.leave_out(f"line {number}", f"not understood: {line.strip()[:80]!r}")
        if not has_line:
            raise ConfigError("this has no line of benchncnn (`name  min = x  max = y  avg = z`): give the text as the program prints it")
        return collector.table()


def _facts(network: str, settings: Mapping[str, int | None]) -> dict[str, Any]:
    gpu, cores = settings.get("gpu_device"), settings.get("powersave")
    conditions = [
        "benchncnn, without the model's weights",
        f"powersave {cores} ({_CORES.get(cores, 'unknown')})" if cores is not None else "",
        "cooled down before" if settings.get("cooling_down") else "",
    ]
    return {
        "figure": "latency-mean",
        "unit": "ms",
        "statistic": "mean",
        "count": settings.get("loop_count"),
        "runtime": "ncnn",
        "backend": None if gpu is None else "cpu" if gpu < 0 else "gpu",
        "precision": "int8" if network.endswith("_int8") else None,
        "threads": settings.get("num_threads"),
        "conditions": ", ".join(filter(None, conditions)),
    }
