"""Which pages there are, and what makes each."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path

from edgemeter.agent.settings.files import FILES, sample
from edgemeter.agent.verdict.words import rules_markdown
from edgemeter.collector.compare.pairing import comparability_kinds, comparability_rules
from tests.docs.reference import card, commands, figures, influx_fields, messages, parts, records, settings
from tests.docs.reference.tables import table

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"
NOTE = "<!-- Made from the code by `python -m tests.docs.reference`. -->\n\n"


def _demand(row: Mapping[str, str]) -> tuple[str, str]:
    """Return what is asked and what follows otherwise; a class of precision apart, a mark has the name of what differs."""
    mark = row["otherwise"] if row["what"] == "class of precision" else row["otherwise"].replace(f"other {row['what']}", "other ...")
    return row["asked"], mark


def comparability() -> str:
    """Return what must match for two cases to be compared: rules that ask the same of several things together."""
    text = "# What is compared with what\n\nA case without a match is listed, not dropped.\n"
    for (requirement, otherwise), group in groupby(comparability_rules(), key=_demand):
        rows = [(row["what"], row["why"]) for row in group]
        if len(rows) > 1:
            text += f"\n{requirement.capitalize()}; otherwise {otherwise}:\n\n{table(['what', 'why'], rows)}"
        else:
            text += f"\n**{rows[0][0]}**: {requirement}; otherwise {otherwise} ({rows[0][1]}).\n"
    kinds = [tuple(row.values()) for row in comparability_kinds()]
    return f"{text}\n## Kinds of figures\n\n{table(list(comparability_kinds()[0]), kinds)}"


def index() -> str:
    """Return the list of the pages."""
    lines = [f"- [{title}]({name}): {text}." for name, (title, text, _) in PAGES.items() if name != "index.md"]
    return "# Reference\n\nMade from the code of this version.\n\n" + "\n".join(lines) + "\n"


# By file: title, what it is about, and what makes it.
PAGES: Mapping[str, tuple[str, str, Callable[[], str]]] = {
    "index.md": ("Reference", "this list", index),
    "commands.md": ("Commands", "one line each; `man edgemeter` has all options", commands.page),
    "configuration.md": ("Configuration and environment", "variables, precedence, samples", settings.page),
    "sensors.md": ("Power sensors", "what each measures, needs and is set by", parts.sensors_page),
    "runtimes.md": ("Runtimes", "libraries, backends, settings, what is timed", parts.runtimes_page),
    "generators.md": ("Generators", "of text", parts.generators_page),
    "decoders.md": ("Decoders", "from a detector's outputs to boxes", parts.decoders_page),
    "card.md": ("The model card", "its keys, and how photographs are resized", card.page),
    "record.md": ("The run record", "every field with its unit", records.page),
    "rules.md": (
        "My run is disturbed: what now",
        "every rule of the verdict",
        rules_markdown,
    ),
    "comparability.md": ("What is compared with what", "which cases match", comparability),
    "figures.md": ("Figures", "by name in each view", figures.page),
    "metrics.md": ("Metrics", "of the collector, trends and alerts", messages.metrics_page),
    "mqtt.md": ("MQTT topics", "direction and message", messages.topics_page),
    "influxdb-fields.md": ("InfluxDB fields", "measurements, tags and fields", influx_fields.page),
}


# Files for programs, which pages link to.
ATTACHMENTS: Mapping[str, Callable[[], str]] = {
    **{f"samples/{kind}.toml": partial(sample, kind) for kind in FILES},
}


def content(name: str) -> str:
    """Return a page, or a file for programs, as it has to be."""
    return ATTACHMENTS[name]() if name in ATTACHMENTS else NOTE + PAGES[name][2]()
