"""Rockchip's rknn-llm, `benchmark.md` (formerly in `README.md`): time to first token, tokens per second and memory of language models.

An empty cell under a model's name is the model above. Of the stages of models that see pictures the prefill is left out: its time is a
part of the first token's. Memory in `G` is left out: it says neither GB nor GiB.
"""

import re
from collections.abc import Mapping
from typing import Any

from edgemeter.collector.published import ReadTable, RowCollector
from edgemeter.collector.published.numbers import quantity
from edgemeter.collector.published.readers.file_facts import version_fact
from edgemeter.collector.published.readers.markup_tables import MarkupTable, add_cell, markdown_tables

_COLUMNS = ("model", "dtype", "seqlen", "new_tokens", "ttft(ms)", "tokens/s")
_CHIP = re.compile(r"R[KV]\d{4}\w*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)B(?:\(A(\d+(?:\.\d+)?)M\))?")


class RknnLlm:
    """Reads the tables of language models and of the stages of those that see pictures."""

    def recognises(self, name: str, text: str) -> bool:  # noqa: ARG002 - the text suffices
        """Return whether a table has the columns of this benchmark."""
        return "TTFT(ms)" in text and any(table.has(*_COLUMNS) for table in markdown_tables(text))

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return three rows for each model: first token, decoding rate, memory."""
        collector = RowCollector(defaults)
        release = re.search(r"with version (\d+(?:\.\d+)+)", text)
        facts = {
            "source": "Rockchip rknn-llm",
            "stated_by": "vendor",
            "runtime": "RKLLM",
            "backend": "NPU",
            "version": version_fact(defaults, release and release[1]),
            "software": release and f"RKLLM {release[1]}",
            "power_mode": "maximum CPU and NPU frequencies" if "maximum CPU and NPU frequencies" in text else None,
        }
        encoder = re.search(r"img-encoder runs inference on RKNN with (\w+)", text)
        for table in markdown_tables(text):
            if table.has(*_COLUMNS):
                _read_table(table, facts, collector)
            elif table.has("model", "stage"):
                _read_stages(table, facts, collector, encoder and encoder[1])
        return collector.table()


def _read_table(table: MarkupTable, facts: Mapping[str, Any], collector: RowCollector) -> None:
    chip = table.sections[-1] if table.sections and _CHIP.fullmatch(table.sections[-1]) else None
    figures = {"ttft(ms)": ("ttft", "ms"), "tokens/s": ("tokens", "tokens/s")}
    if table.has("memory(MB)"):
        figures["memory(mb)"] = "memory", "MB"
    elif table.has("memory(G)"):
        collector.leave_out(f"table at line {table.line}", "memory(G) is left out: it says neither GB nor GiB")
    name = ""
    for line, cells in table.records(collector):
        name = cells["model"] or name
        size = cells.get("model size", "")
        matched = _SIZE.fullmatch(size)
        context = cells.get("max_context")
        for column, (figure, unit) in figures.items():
            add_cell(
                collector,
                f"line {line}, {column}",
                cells[column],
                figure=figure,
                unit=unit,
                model=f"{name} {size}".strip(),
                device=cells.get("platform") or chip,
                precision=cells["dtype"] or None,
                prompt_tokens=cells["seqlen"],
                output_tokens=cells["new_tokens"],
                parameters=float(matched[1]) * 1e9 if matched else None,
                read_parameters=float(matched[2]) * 1e6 if matched and matched[2] else None,
                conditions=f"{cells['seqlen']} tokens in, {cells['new_tokens']} out{f', context {context}' if context else ''}",
                **facts,
            )


def _read_stages(table: MarkupTable, facts: Mapping[str, Any], collector: RowCollector, encoder_precision: str | None) -> None:
    chips = {column: matched for column in table.names if (matched := re.fullmatch(r"(R[KV]\d{4}\w*)\((\w+)\)", column))}
    name = ""
    for line, cells in table.records(collector):
        name = cells["model"] or name
        stage = cells["stage"]
        encoder = re.fullmatch(r"img-encoder\((\d+)\*(\d+)\)", stage, re.IGNORECASE)
        if not encoder and stage.casefold() != "decode":
            collector.leave_out(f"line {line}", f"{name}, stage {stage!r}: a part of the first token, which is no figure")
            continue
        for column, chip in chips.items():
            where = f"line {line}, {column}"
            try:
                value, unit = quantity(cells[column.casefold()])
            except ValueError as error:
                collector.leave_out(where, str(error))
                continue
            collector.add(
                where,
                figure="image-encode" if encoder else "tokens",
                value=value,
                unit=unit or "no unit",
                model=name or None,
                device=chip[1],
                precision=encoder_precision if encoder else chip[2],
                input_size=f"{encoder[1]}x{encoder[2]}" if encoder else None,
                conditions=f"stage {stage} of a model that sees pictures",
                **facts,
            )
