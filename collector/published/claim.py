"""A claim as people write it, `Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 20 tokens/s`, as published rows.

Behind the colon stand figures with their units, and conditions, separated by commas. A word that is not understood refuses the claim: it
might be what makes it true. Of a range the end counts that is easier to reach, as it does of `at least` and `up to`.
"""

import re
from collections.abc import Mapping
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import RowCollector
from edgemeter.collector.published.name_matching import INPUT_SIZE, PRECISION
from edgemeter.collector.published.numbers import number
from edgemeter.collector.published.row import KINDS, NOT_STATED, UNITS, PublishedRow

SHAPE = "MODEL [PRECISION] [INPUT SIZE] on DEVICE [(POWER MODE)]: FIGURE UNIT [STATISTIC][, CONDITION ...]"
EXAMPLES = (
    "Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 18-22 t/s",
    "YOLOv8n INT8 640 on Jetson Orin Nano (25W): 3.49 ms p50 over 500 queries, 12 W",
    "Qwen2.5-1.5B w8a8 on RK3588: 378 ms TTFT, 16.69 t/s, prompt 128, output 64, speculative off",
)
_CLAIM = re.compile(r"(?P<model>\S.*?)\s+on\s+(?P<device>\S.*?)\s*:\s+(?P<figures>\S.*)", re.IGNORECASE | re.DOTALL)
_ADDRESS = re.compile(r"[(<]?(https?://[^\s)>]+)[)>]?")
_POWER_MODE = re.compile(r"\((?P<mode>\d+ ?W|MAXN\w*|[^()]* mode)\)", re.IGNORECASE)
# Parts end at a comma, or before another figure or speculation that stands behind the first without one.
_BETWEEN = re.compile(r"[,;]\s+|\s+(?:at|and)\s+(?=[\d.])|\s+(?=(?:with|without|no)\s+(?:specul|mtp))", re.IGNORECASE)
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
# How units are written out, by the unit of `UNITS`.
_SPELLINGS = {
    "tokens per second": "tokens/s", "tokens/sec": "tokens/s", "tok/sec": "tokens/s", "token/s": "tokens/s", "tokens/second": "tokens/s",
    "frames per second": "fps", "frames/s": "fps", "images per second": "images/s", "img/s": "images/s",
    "inferences per second": "inferences/s", "milliseconds": "ms", "seconds": "s", "joules": "j", "watts": "w",
    "j/tok": "j/token", "mj/tok": "mj/token", "ms/tok": "ms/token", "j per token": "j/token", "mj per token": "mj/token",
    "ms per token": "ms/token", "j/inference": "j", "mj/inference": "mj", "j per inference": "j", "mj per inference": "mj",
    "mwh per token": "mwh/token",
}  # fmt: skip
# Units that are the inverse of one of ours.
_INVERSE = {"tokens/j": "j/token", "tok/j": "j/token", "t/j": "j/token", "tokens per joule": "j/token", "tokens per j": "j/token"}
_UNITS = {**{unit: unit for units in UNITS.values() for unit in units}, **_SPELLINGS, **_INVERSE}
_UNIT = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True) if unit != "ratio")
_FIGURE = re.compile(
    rf"(?P<low>{_NUMBER})\+?(?:\s*(?:-|\u2013|to)\s*(?P<high>{_NUMBER}))?\s*(?P<unit>{_UNIT})(?![\w/])", re.IGNORECASE,
)  # fmt: skip
# An idle power and swap are no figures of a model: they stay in the conditions.
_NO_FIGURE = re.compile(
    rf"(?:{_NUMBER})\s*m?w (?:at )?idle|idle(?: power)?(?: of)? (?:{_NUMBER})\s*m?w"
    r"|(?:(?:with|without|no) )?(?:[^,]* of )?(?:swap|zram)\b.*",
    re.IGNORECASE,
)
# What a unit is of where no word says more.
_USUAL = {
    **dict.fromkeys(("mj/token", "j/token", "mwh/token"), "energy-output-token"),
    "ms/token": "tpot", "ms": "latency", "per s": "throughput", "tokens/s": "tokens", "mJ": "energy", "W": "power",
    "°C": "temperature_max_c",
}  # fmt: skip
# Words that say which figure it is; of one word the first whose unit fits.
_WORDS: Mapping[str, tuple[str, ...]] = {
    r"ttft|time to first token|first token": ("ttft",),
    r"tpot|time per output token|inter-token latency|itl": ("tpot",),
    r"prefill|prompt processing|prompt eval": ("prefill-tokens", "energy-prefill-token"),
    r"decode|decoding|generation|token generation": ("tokens", "energy-decode-token"),
    r"latency|per inference|inference time": ("latency",),
    r"throughput": ("throughput", "output-tokens"),
    r"memory|ram": ("memory",),
    r"file size|model size|file": ("size",),
    r"map|map50-95|accuracy|top-1|top1": ("accuracy",),
    r"power": ("power",),
    r"energy": ("energy", "energy-output-token"),
}
_METRICS = {"map": "mAP", "top-1": "top-1", "top1": "top-1", "accuracy": "accuracy"}
_STATISTICS = {
    "mean": "mean|average|avg|on average", "median": "median|p50|typical", "max": "peak|max|maximum|up to", "min": "min|minimum|best",
    **{level: re.escape(level) for level in ("p90", "p95", "p99.9", "p99")},
}  # fmt: skip
_SCOPES = {"wall-ac": "at the wall|wall", "board-input": "board input", "module": "module", "soc-rails": "soc"}
# They change nothing of a figure: a bound is taken at its own end.
_FILLERS = re.compile(
    r"\b(?:about|around|approx|at least|more than|over|under|less than|with|at|the|of|a|an|per query|only|just)\b|[~≈<>≤≥.]"
)
_COUNTED = re.compile(r"\b(?:over|of|from|in) (?P<count>\d[\d,]*) (?P<of>queries|runs|inferences|samples|requests|images|pictures|items)\b")
_COUNT = r"(?P<value>\d+)"
# Conditions: the field, and the forms in which they are written.
_CONDITIONS: Mapping[str, tuple[str, ...]] = {
    "batch": (rf"batch(?: size)?(?: of)? {_COUNT}", rf"bs ?{_COUNT}"),
    "threads": (rf"{_COUNT} threads?", rf"threads? {_COUNT}"),
    "concurrency": (rf"{_COUNT} (?:users?|streams?)", rf"concurrency {_COUNT}"),
    "repeats": (rf"{_COUNT} repeats?",),
    "prompt_tokens": (rf"prompt(?: of)? {_COUNT}(?: tokens)?", rf"{_COUNT} (?:prompt|input) tokens"),
    "output_tokens": (rf"output(?: of)? {_COUNT}(?: tokens)?", rf"{_COUNT} (?:output|generated) tokens"),
    "depth_tokens": (rf"depth(?: of)? {_COUNT}(?: tokens)?",),
    "power_mode": (r"power mode (?P<value>.+)", r"(?P<value>.+?) (?:power )?mode"),
    "runtime": (r"runtime (?P<value>.+)", r"(?:using|via) (?P<value>.+)"),
    "backend": (r"backend (?P<value>.+)", r"on (?:the )?(?P<value>cpu|gpu|npu)", r"(?P<value>cpu|gpu|npu)(?: only)?"),
    "software": (r"software (?P<value>.+)",),
    "precision": (r"precision (?P<value>.+)",),
    "input_size": (r"input(?: size)? (?P<value>\d+(?:x\d+)*)",),
    "dataset": (r"(?:data|dataset|data set) (?P<value>.+)",),
}
_SPECULATION = {
    "off": r"speculati(?:ve|on)(?: decoding)? off|(?:no|without) speculati(?:on|ve decoding)|not speculative",
    "on": r"speculati(?:ve|on)(?: decoding)?(?: on)?|with speculati(?:on|ve decoding)|(?:with )?mtp",
}


def parse_claim(text: str, defaults: Mapping[str, Any] | None = None) -> list[PublishedRow]:
    """Return the figures of a claim; `defaults` are fields of `PublishedRow` that hold where the claim states none.

    Raises:
        ConfigError: a part of it is not understood.
    """
    words = " ".join(text.split())
    address = _ADDRESS.search(words)
    claim = _CLAIM.fullmatch(_ADDRESS.sub(" ", words).strip())
    if claim is None:
        raise _refusal("it has no MODEL, DEVICE and FIGURE", text)
    facts = {
        "source": "claim",
        "address": address[1] if address else None,
        "conditions": words,
        **_subject(claim["model"], claim["device"]),
    }
    figures: list[dict[str, Any]] = []
    for part in _BETWEEN.split(claim["figures"].rstrip(" .")):
        if fields := _condition(part):
            twice = next((name for name in fields if facts.get(name) not in (None, fields[name])), None)
            if twice:
                raise _refusal(f"{twice} is stated twice, as {facts[twice]} and as {fields[twice]}", text)
            facts |= fields
        elif not _NO_FIGURE.fullmatch(part):
            figures.append(_figure(part, text))
    if not figures:
        raise _refusal("it has conditions and no figure", text)
    collector = RowCollector({"version": NOT_STATED, "address": NOT_STATED, **(defaults or {})})
    for fields in figures:
        collector.add("the claim", **(facts | fields))
    if collector.left_out:
        raise _refusal("; ".join(collector.left_out), text)
    return collector.rows


def _refusal(why: str, text: str) -> ConfigError:
    return ConfigError(f"cannot read the claim {text!r}: {why}. Write: {SHAPE}; for example {EXAMPLES[0]!r} or {EXAMPLES[2]!r}")


def _subject(model: str, device: str) -> dict[str, str | None]:
    """Return the facts in what stands before the figures."""
    plain = model.replace("-bit", " bit")
    precision = PRECISION.search(plain.casefold())
    name = plain[: precision.start()] + plain[precision.end() :] if precision else model
    size = INPUT_SIZE.search(name)
    name = name[: size.start()] + name[size.end() :] if size else name
    mode = _POWER_MODE.search(device)
    return {
        "model": re.sub(r"\(\s*\)", "", " ".join(name.split())).strip(" -_,") or model,
        "precision": plain[precision.start() : precision.end()] if precision else None,
        "input_size": size[0] if size else None,
        "device": " ".join(_POWER_MODE.sub(" ", device).split()),
        "power_mode": mode["mode"].removesuffix(" mode") if mode else None,
    }


def _condition(part: str) -> dict[str, Any]:
    """Return the field that a part states; empty where it is no condition."""
    for state, form in _SPECULATION.items():
        if re.fullmatch(form, part, re.IGNORECASE):
            return {"speculative": state}
    if _FIGURE.search(part) and not re.search(r"\bmode\b", part, re.IGNORECASE):
        return {}
    for field, forms in _CONDITIONS.items():
        if match := next(filter(None, (re.fullmatch(form, part, re.IGNORECASE) for form in forms)), None):
            return {field: match["value"]}
    return {}


def _figure(part: str, text: str) -> dict[str, Any]:
    """Return the fields of a figure with its unit."""
    counted = _COUNTED.search(part)
    words = part.replace(counted[0], " ") if counted else part
    match = _FIGURE.search(words)
    if match is None:
        raise _refusal(
            f"{part!r} is neither a figure with its unit (20 tokens/s, 3.49 ms, 12 W) nor a condition (batch 1, prompt 128)", text
        )
    unit = _UNITS[match["unit"].casefold()]
    remaining = f"{words[: match.start()]} {words[match.end() :]}".casefold()
    named, remaining = _taken(remaining, {pattern: pattern for pattern in _WORDS})
    statistic, remaining = _taken(remaining, _STATISTICS)
    scope, remaining = _taken(remaining, _SCOPES)
    if unknown := " ".join(_FILLERS.sub(" ", remaining).split()):
        raise _refusal(f"{unknown!r} is not understood", text)
    figure = _kind(unit, _WORDS[named] if named else (), part, text)
    ends = [_value(digits, text) for digits in (match["low"], match["high"]) if digits]
    if match["unit"].casefold() in _INVERSE:
        ends = [_inverse(digits, end) for digits, end in zip((match["high"], match["low"])[-len(ends) :], reversed(ends), strict=True)]
    if ends != sorted(ends):
        raise _refusal(f"the range {match[0]!r} ends below its start", text)
    entry = KINDS[figure].entry
    is_easier_high = entry is not None and entry.better == "lower"
    # A count has no decimals: 5,000 of them are a thousand.
    count = int(counted["count"].replace(",", "")) if counted else None
    return {
        "figure": figure,
        "value": ends[-1] if is_easier_high else ends[0],
        "unit": match["unit"] if match["unit"].casefold() in KINDS[figure].units else unit,
        "statistic": statistic,
        "scope": scope,
        "low": ends[0] if len(ends) == 2 else None,
        "high": ends[1] if len(ends) == 2 else None,
        "accuracy_metric": next((name for word, name in _METRICS.items() if word in part.casefold()), None)
        if figure == "accuracy"
        else None,
        "images" if figure == "accuracy" else "count": count,
    }


def _value(digits: str, text: str) -> float:
    try:
        return number(digits)
    except ValueError as error:
        remedy = f": write {digits.replace(',', '')} or {digits.replace(',', '.')}" if "," in digits else ""
        raise _refusal(f"{error}{remedy}", text) from error


def _inverse(digits: str, value: float) -> float:
    """Return the inverse of a number with as many digits as are stated, two at least: more would make it more exact than it is."""
    if value == 0:
        return value
    exact = max(2, len(re.sub(r"\D", "", digits).lstrip("0")))
    return float(f"{1 / value:.{exact}g}")


def _taken(text: str, patterns: Mapping[str, str]) -> tuple[str | None, str]:
    """Return which pattern stands in a text, the longest words first, and the text without it."""
    matches = [(match, name) for name, pattern in patterns.items() for match in re.finditer(rf"(?<![\w.])(?:{pattern})(?![\w])", text)]
    if not matches:
        return None, text
    match, name = max(matches, key=lambda pair: len(pair[0][0]))
    return name, f"{text[: match.start()]} {text[match.end() :]}"


def _kind(unit: str, candidates: tuple[str, ...], part: str, text: str) -> str:
    """Return the figure of a unit that words name, or that it is usually of."""
    if candidates:
        fitting = [name for name in candidates if unit in KINDS[name].units]
        if fitting:
            return fitting[0]
        raise _refusal(f"{part!r}: {unit} is not a unit of {' or '.join(candidates)}", text)
    quantity = next(name for name, units in UNITS.items() if unit in units)
    figure = _USUAL.get(unit) or _USUAL.get(quantity)
    if figure is None:
        raise _refusal(f"{part!r} does not state what it measures: add `memory`, `file size` or `accuracy`", text)
    return figure
