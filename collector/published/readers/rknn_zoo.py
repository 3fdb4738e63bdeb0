"""Rockchip's RKNN model zoo, `README.md`: frames per second of models on its NPUs.

A column of two chips (`RK3566 RK3568`) is a row for each. `@single_core` is one core of the NPU. A cell such as `30.6(INT8)` states the
precision of its figure. Real-time factors (`RTF 0.817`) are no frames per second and are left out; `/` is a model that a chip does not run.
"""

import re
from collections.abc import Mapping
from typing import Any

from edgemeter.agent.base.foreign_text import whole_number
from edgemeter.collector.published import ReadTable, RowCollector
from edgemeter.collector.published.readers.file_facts import version_fact
from edgemeter.collector.published.readers.markup_tables import MarkupTable, add_cell, markdown_tables

_COLUMNS = ("model_name", "inputs_shape", "dtype")
_CHIP = re.compile(r"R[KV]\d{4}\w*")
_UNSUPPORTED = "/"


class RknnZoo:
    """Reads the table of frames per second."""

    def recognises(self, name: str, text: str) -> bool:  # noqa: ARG002 - the text suffices
        """Return whether a table has the columns of the zoo's."""
        return "inputs_shape" in text and any(table.has(*_COLUMNS) for table in markdown_tables(text))

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return a row for each model and chip."""
        collector = RowCollector(defaults)
        tables = markdown_tables(text)
        releases = [table.rows[0][1][0] for table in tables if table.names[:2] == ("Version", "Description") and table.rows]
        facts = {
            "source": "Rockchip RKNN Model Zoo",
            "stated_by": "vendor",
            "runtime": "RKNN",
            "version": version_fact(defaults, releases[0] if releases else None),
            "software": f"RKNN Model Zoo {releases[0]}" if releases else None,
            "power_mode": "maximum NPU frequency" if "maximum NPU frequency" in text else None,
        }
        is_inference = "Does not include the time-consuming of pre-processing" in text
        scope = "inference without pre- and post-processing" if is_inference else "extent not stated"
        for table in tables:
            if table.has(*_COLUMNS):
                _read_table(table, scope, facts, collector)
        return collector.table()


def _read_table(table: MarkupTable, scope: str, facts: Mapping[str, Any], collector: RowCollector) -> None:
    chips = {name: _CHIP.findall(name) for name in table.names if _CHIP.match(name)}
    demo = ""
    without = 0
    for line, cells in table.records(collector):
        demo = cells.get("demo") or demo
        shape = cells["inputs_shape"]
        batch = re.match(r"\[(\d+),", shape)
        for name, devices in chips.items():
            if cells[name.casefold()] == _UNSUPPORTED:
                without += len(devices)
                continue
            # `30.6(INT8)`: of this chip only.
            matched = re.fullmatch(r"(\S+?)\s*\((INT8|INT16|FP16)\)", cells[name.casefold()])
            for device in devices:
                add_cell(
                    collector,
                    f"line {line}, {cells['model_name']} on {device}",
                    matched[1] if matched else cells[name.casefold()],
                    figure="throughput",
                    unit="fps",
                    model=cells["model_name"],
                    device=device,
                    backend="NPU, one core" if "single_core" in name else "NPU",
                    precision=matched[2] if matched else cells["dtype"] or None,
                    batch=batch and whole_number(batch[1]),
                    input_size=shape or None,
                    conditions=f"demo {demo}, input {shape}, {scope}",
                    **facts,
                )
    if without:
        collector.leave_out(f"table at line {table.line}", f"{without} pairs of a model and a chip that does not run it ({_UNSUPPORTED})")
