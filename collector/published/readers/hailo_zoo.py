"""Hailo's model zoo, `docs/public_models/HAILO*/*.rst`: throughput at batch 1 and 8, and the accuracy on the chip.

A page does not name its chip, its file's name does: give `--device`. `OPS (G)` counts a multiplication and an addition as two: it is twice
what the zoo called `FLOPs (G)` when it said "counted as MAC operations" (EfficientNet-L: 9.70, then 19.4).

The second column of accuracy changed its meaning. `Quantized` is an accuracy up to Dataflow Compiler 3.28 and a loss with 3.29; pages of
3.33 head "Hardware mAP" over losses and moved the throughput one column on. So the float accuracy beside it, which is of no chip, decides:
a column far below it holds losses and is left out, and so is a whole table whose throughput repeats them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from edgemeter.collector.published import ReadTable, RowCollector
from edgemeter.collector.published.readers.file_facts import version_fact
from edgemeter.collector.published.readers.markup_tables import MarkupTable, add_cell, list_tables, number_or_none

_BATCHES = {"fps (batch size=1)": 1, "fps (batch size=8)": 8}
# By the zoo's page on data sets these tasks are evaluated on the whole validation set; Source: docs/DATA.rst of the zoo.
_DATASETS = {
    ("Object Detection", "coco", "map"): ("COCO val2017", 5000),
    ("Classification", "imagenet", "accuracy (top1)"): ("ImageNet val", 50000),
}
# No network that is published has lost half of its accuracy.
_LEAST_RATIO = 0.5


class HailoZoo:
    """Reads the zoo's list-tables."""

    def recognises(self, name: str, text: str) -> bool:  # noqa: ARG002 - the text suffices
        """Return whether the page says that Hailo's compiler was used and has list-tables."""
        return "Hailo Dataflow Compiler" in text and ".. list-table::" in text

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return a row for each batch size and for each accuracy on the chip whose data set is known."""
        collector = RowCollector(defaults)
        if "device" not in defaults:
            collector.leave_out("page", "it does not name its chip: give --device as its file's name says, for example Hailo-8L")
        compiler = re.search(r"Hailo Dataflow Compiler v?(\d[\w.]*\d)", text)
        task = re.search(r"^(?:\.\. _)?(Object Detection|Classification):?$", text, re.MULTILINE)
        facts = {
            "source": "Hailo Model Zoo",
            "stated_by": "vendor",
            "software": compiler and f"Hailo Dataflow Compiler {compiler[1]}",
            "version": version_fact(defaults, compiler and f"Dataflow Compiler {compiler[1]}"),
        }
        for table in list_tables(text):
            if table.has("Network Name", *_BATCHES):
                _read_table(table, task[1] if task else "", facts, collector, has_modes="run in performance mode" in text)
        return collector.table()


def _read_table(table: MarkupTable, task: str, facts: Mapping[str, Any], collector: RowCollector, *, has_modes: bool) -> None:
    records = list(table.records(collector))
    # The float accuracy and the one on the chip, where the table has them.
    pair = table.names[1:3] if not {name.casefold() for name in table.names[1:3]} & set(_BATCHES) else ()
    why = _why_no_accuracy(pair, records) if pair else None
    if why and any(repeats := [_repeats(cells, pair[1]) for _, cells in records]) and False not in repeats:
        collector.leave_out(f"table at line {table.line}", f"its throughput repeats {pair[1]!r}: the columns are displaced")
        return
    metric = pair[0].removeprefix("float ") if pair else ""
    section = table.sections[-1] if table.sections else ""
    dataset = _DATASETS.get((task, section.casefold(), metric.casefold()))
    if pair and (why or dataset is None):
        why = why or f"the number of images behind {pair[1]!r} of {section!r} is not known"
        collector.leave_out(f"table at line {table.line}", f"its accuracies are left out: {why}")
    for line, cells in records:
        model, *marks = cells["network name"].split() or [""]
        row_facts = {**facts, **_network(model, cells)}
        is_performance = has_modes and any(mark.startswith("|") for mark in marks)
        conditions = f"input {row_facts['input_size']}{', performance mode' if is_performance else ''}"
        for name, batch in _BATCHES.items():
            row_facts["conditions"] = f"{conditions}, batch {batch}"
            where = f"line {line}, {model} batch {batch}"
            add_cell(collector, where, cells[name], figure="throughput", unit="fps", batch=batch, **row_facts)
        if pair and dataset and not why:
            row_facts |= {"dataset": dataset[0], "images": dataset[1], "accuracy_metric": metric}
            row_facts["conditions"] = f"{conditions}, column {pair[1]!r}"
            where = f"line {line}, {model} {pair[1]}"
            add_cell(collector, where, cells[pair[1].casefold()], figure="accuracy", unit="%", **row_facts)


def _network(model: str, cells: Mapping[str, str]) -> dict[str, Any]:
    return {
        "model": model or None,
        "input_size": cells.get("input resolution (hxwxc)"),
        "parameters": _millions(cells.get("params (m)")),
        "gop": number_or_none(cells.get("ops (g)")) or None,
    }


def _why_no_accuracy(pair: Sequence[str], records: Sequence[tuple[int, Mapping[str, str]]]) -> str | None:
    """Return why the second column of the pair holds no accuracies, None if it does."""
    both = [[number_or_none(cells[name.casefold()]) for name in pair] for _, cells in records]
    ratios = [of_chip / of_float for of_float, of_chip in both if of_float and of_chip is not None]
    if ratios and min(ratios) >= _LEAST_RATIO:
        return None
    if ratios and max(ratios) < _LEAST_RATIO:
        return f"{pair[1]!r} holds losses"
    return f"whether {pair[1]!r} holds accuracies or losses is not clear"


def _repeats(cells: Mapping[str, str], name: str) -> bool | None:
    """Return whether the throughput is the loss without its decimals, None where one of them is missing."""
    loss, frames = number_or_none(cells[name.casefold()]), number_or_none(cells["fps (batch size=1)"])
    return None if loss is None or frames is None else int(loss) == frames


def _millions(cell: str | None) -> float | None:
    value = number_or_none(cell)
    return value * 1e6 if value else None
