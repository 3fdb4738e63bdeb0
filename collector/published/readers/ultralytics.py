"""Ultralytics' device guides (`docs/en/guides/raspberry-pi.md`, `nvidia-jetson.md`): latency and size of a model in each format.

The accuracy of these tables is left out: it is over the four images of COCO8, where a model of AP 0.40 has 0.61, or over images that the
model was trained on (COCO128). The release differs by table: it stands under it, or at the head of the page (`benchmark_version`).
"""

import re
from collections.abc import Mapping
from typing import Any

from edgemeter.collector.published import ReadTable, RowCollector
from edgemeter.collector.published.readers.file_facts import version_fact
from edgemeter.collector.published.readers.markup_tables import MarkupTable, add_cell, markdown_tables

_LATENCY = "Inference time (ms/im)"
_SIZES = ("size on disk (mb)", "size (mb)")
_DATASETS = {"coco8": "the 4 images of COCO8", "coco128": "the 128 images of COCO128, on which the models were trained"}
_RUN_ON = re.compile(r"Benchmarks were run on (?:an? )?(.+?)(?: devices?)? at (\w+\d+) \[?precision\]?(?:\([^)]*\))?(.*)")


class UltralyticsGuide:
    """Reads the tables of formats in a guide's tabs."""

    def recognises(self, name: str, text: str) -> bool:  # noqa: ARG002 - the text suffices
        """Return whether a table has the guides' columns."""
        return _LATENCY in text and any(table.has("Format", "Status", _LATENCY) for table in markdown_tables(text))

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return two rows for each model and format, latency and size."""
        collector = RowCollector(defaults)
        lines = text.splitlines()
        dataset = re.search(r'data="?(coco\w*)\.yaml', text)
        images = _DATASETS.get(dataset[1], dataset[1]) if dataset else "a number of images that is not stated"
        for table in markdown_tables(text):
            if table.has("Format", "Status", _LATENCY):
                collector.leave_out(f"table at line {table.line}", f"its mAP is left out: it is over {images}")
                _read_table(table, lines, collector)
        return collector.table()


def _read_table(table: MarkupTable, lines: list[str], collector: RowCollector) -> None:
    run_on = next((matched for line in reversed(lines[: table.line]) if (matched := _RUN_ON.search(line))), None)
    device = _device(table, run_on)
    release = _release(table, lines)
    size = re.search(r"image size of (\d+)", run_on[3]) if run_on else None
    size_column = next((name for name in _SIZES if table.has(name)), None)
    for line, cells in table.records(collector):
        named = re.fullmatch(r"(.+?) \((FP32|FP16|INT8)\)", cells["format"])
        facts = {
            "source": "Ultralytics guide",
            "stated_by": "vendor",
            "version": version_fact(collector.defaults, release),
            "software": release and f"Ultralytics {release}",
            "model": cells.get("model") or (table.tab and table.tab.split(" on ")[0]),
            "device": device,
            "runtime": named[1] if named else cells["format"],
            "precision": named[2] if named else run_on and run_on[2],
            "input_size": size and size[1],
            "conditions": f"{cells['format']}{f', input size {size[1]}' if size else ''}",
        }
        where = f"line {line}, {facts['model']} {cells['format']}"
        add_cell(collector, where, cells[_LATENCY.casefold()], figure="latency", unit="ms/im", **facts)
        if size_column:
            add_cell(collector, f"{where}, size", cells[size_column], figure="size", unit="MB", **facts)


def _device(table: MarkupTable, run_on: re.Match[str] | None) -> str | None:
    """Return the device that the tab, the heading of a table of several, or the sentence above names."""
    if table.tab and " on " in table.tab:
        return table.tab.split(" on ")[1]
    if len(table.sections) > 3:
        return table.sections[3]
    # One of several devices is none.
    return run_on[1] if run_on and " and " not in run_on[1] else None


def _release(table: MarkupTable, lines: list[str]) -> str | None:
    """Return the release that stands behind the table, before the next heading; it may refer to the page's head."""
    for line in lines[table.rows[-1][0] if table.rows else table.line :]:
        if line.startswith("#"):
            break
        if matched := re.search(r"Benchmarked with Ultralytics (\d[\w.]*\d|\{\{ benchmark_version \}\})", line):
            if matched[1][0].isdigit():
                return matched[1]
            head = next((matched for text in lines[:20] if (matched := re.fullmatch(r"benchmark_version: (\d[\w.]*\d)", text))), None)
            return head and head[1]
    return None
