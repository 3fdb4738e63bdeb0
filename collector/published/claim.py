"""A claim, `MODEL on DEVICE: NUMBER UNIT`, as a published row: what is not understood refuses it, and a fact beyond it is an option's."""

import re
from collections.abc import Mapping
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.figures import ENERGY, LATENCY, MEMORY, THROUGHPUT, TOKEN_ENERGY, TPOT
from edgemeter.collector.published.row import KINDS, NOT_STATED, UNITS, PublishedRow, kind_called, row_of

EXAMPLE = "Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 18-22 tokens/s"
_CLAIM = re.compile(r"(?P<model>\S.*?) on (?P<device>\S.*?): (?:(?P<low>[\d.,]+) ?(?:-|\u2013|to) ?)?(?P<value>[\d.,]+.*)")
# A comma before three digits is a thousand only where nothing else can be meant: 1,234 is also how half the world writes 1.234.
_NUMBER = re.compile(r"(-?(?:\d+|\d{1,3}(?:,\d{3})+(?=\.)|\d{1,3}(?:,\d{3}){2,})(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([^\W\d_][\w/ ]*)?")
# What a unit is of, by its spelling, else by our unit; `--fact figure=...` says another.
_USUAL = {
    "mj/token": TOKEN_ENERGY, "j/token": TOKEN_ENERGY, "ms/token": TPOT, "ms": LATENCY, "/s": THROUGHPUT,
    "t/s": "generation_decode_tokens_per_s", "mJ": ENERGY, "W": "energy_mean_power_w", "MB": MEMORY,
}  # fmt: skip


def parse_claim(text: str, facts: Mapping[str, Any]) -> PublishedRow:
    """Return the figure of a claim; `facts` are fields of `PublishedRow` that it does not state.

    Of a range the end counts that is easier to reach. Raises ConfigError for what is not understood.
    """
    words = " ".join(text.split())
    claim = _CLAIM.fullmatch(words)
    try:
        value, unit = quantity(claim["value"]) if claim else (0.0, "")
        low = quantity(claim["low"])[0] if claim and claim["low"] else None
    except ValueError as error:
        raise ConfigError(f"cannot read the claim {text!r} ({error}). Write for example {EXAMPLE!r}") from error
    our_unit = next((name for name, units in UNITS.items() if unit.casefold() in units), None)
    if claim is None or our_unit is None:
        why = f"{unit!r} is no unit of a figure" if claim else "it is not of the form MODEL on DEVICE: NUMBER UNIT"
        raise ConfigError(f"cannot read the claim {text!r}: {why}, such as {EXAMPLE!r}")
    figure = kind_called(str(facts.get("figure") or _USUAL.get(unit.casefold()) or _USUAL[our_unit]))
    entry = KINDS[figure].entry
    is_lower_better = entry is not None and entry.better == "lower"
    as_claimed = {"model": claim["model"], "device": claim["device"], "figure": figure, "unit": unit, "conditions": words[:500]}
    ends = {} if low is None else {"low": low, "high": value}
    easier = value if low is None or is_lower_better else low
    return row_of({"source": "claim", "version": NOT_STATED, "address": NOT_STATED, **facts, **as_claimed, **ends, "value": easier})


def quantity(text: str) -> tuple[float, str]:
    """Return a number and the unit behind it, if any; raises ValueError, which says why, for anything else."""
    matched = _NUMBER.fullmatch(text.strip())
    if matched is None:
        is_ambiguous = re.fullmatch(r"\d{1,3},\d{3}", text.strip())
        raise ValueError(f"{text!r} may be a thousand or a decimal" if is_ambiguous else f"{text!r} is not a number")
    return float(matched[1].replace(",", "")), (matched[2] or "").strip()
