"""Which pages there are, and what makes each."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from edgemeter.agent.settings.files import FILES, sample
from edgemeter.agent.verdict.words import rule_rows
from edgemeter.collector.compare.pairing import comparability_rules
from tests.docs.reference import card, commands, figures, influx_fields, messages, parts, records, settings
from tests.docs.reference.tables import table

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"
NOTE = "<!-- Made from the code by `python -m tests.docs.reference`. -->\n\n"
RULES = """# My run is disturbed: what now

The verdict on a run is `ok`, `disturbed` or `invalid`. Something outside the model changed the figures of a disturbed run: where three runs
of its case are ok, it does not count; elsewhere it counts, and the case is disturbed. An invalid run is listed and enters no statistic. A
note casts no doubt on the figures. Find the rule below, do what its last column says, and measure again. A rule whose facts are unknown on
a machine is not violated.
"""
EFFECTS = {"invalid": "A run is invalid", "disturbed": "A run is disturbed", "note": "A note"}
COMPARABILITY = """# What is compared with what

There are three ways to compare, and each asks for something else:

- **Cases with a reference** (`edgemeter compare --reference NAME`, and the page). Each case is compared with the reference case that is
  most like it, by the rules below. A case without a match is listed with the reason, not dropped.
- **A change with its baseline** (`edgemeter compare OLD NEW`, of stored runs). A case is compared with the same case: everything below is
  equal, the device too, or the board where no device is on both sides. Where each side has only one case, these two are compared.
- **Models that you name** (`edgemeter compare a.onnx b.onnx`, or the ids of two runs). They may differ in everything, in the model and the
  input size too. Their speeds are compared only under the same scenario, rate and deadline, their accuracies only by the same metric on the
  same images, and their energies only at the same scope. `--require` and `--cheapest` choose among cases that agree in all that has to be
  equal except model, precision and input size.

## The rules
"""


def rules() -> str:
    """Return the rules of the verdict, each with what to do about it."""
    text = RULES
    for effect, heading in EFFECTS.items():
        rows = [(f"`{row.name}`", row.sentence, row.remedy) for row in rule_rows() if row.effect == effect]
        text += f"\n## {heading}\n\n{table(['rule', 'sentence', 'what to do'], rows)}"
    return text


def comparability() -> str:
    """Return what must match for two cases to be compared: rules that ask the same of several things together."""
    text = COMPARABILITY
    for (requirement, otherwise), group in groupby(comparability_rules(), key=itemgetter("asked", "otherwise")):
        rows = [(row["what"], row["why"]) for row in group]
        if len(rows) > 1:
            text += f"\n{requirement.capitalize()}; otherwise {otherwise}:\n\n{table(['what', 'why'], rows)}"
        else:
            text += f"\n**{rows[0][0]}**: {requirement}; otherwise {otherwise} ({rows[0][1]}).\n"
    kinds = [
        ("measured", "measured", "yes", "on a board or a server (role `reference`), by the same agent"),
        ("replayed", "replayed", "marked", "the figures of a recording"),
        ("imported (MLPerf)", "compatible MLPerf results", "no", "shown separately with the footnote that MLCommons requires"),
        ("published", "nothing", "no", "shown with source, version, date and conditions"),
    ]
    return f"{text}\n## Kinds of figures\n\n{table(['kind', 'compared with', 'ranked', 'note'], kinds)}"


def index() -> str:
    """Return the list of the pages."""
    lines = [f"- [{title}]({name}): {text}." for name, (title, text, _) in PAGES.items() if name != "index.md"]
    return "# Reference\n\nMade from the code of this version.\n\n" + "\n".join(lines) + "\n"


# By file: title, what it is about, and what makes it.
PAGES: Mapping[str, tuple[str, str, Callable[[], str]]] = {
    "index.md": ("Reference", "this list", index),
    "commands.md": ("Commands", "one line each", commands.page),
    "configuration.md": ("Configuration and environment", "variables, precedence, samples", settings.page),
    "sensors.md": ("Power sensors", "what each measures, needs and is set by", parts.sensors_page),
    "runtimes.md": ("Runtimes", "libraries, backends, settings, what is timed", parts.runtimes_page),
    "generators.md": ("Generators", "of text", parts.generators_page),
    "decoders.md": ("Decoders", "from a detector's outputs to boxes", parts.decoders_page),
    "card.md": ("The model card", "its keys, and how photographs are resized", card.page),
    "record.md": ("The run record", "every field with its unit", records.page),
    "rules.md": ("My run is disturbed: what now", "every rule of the verdict", rules),
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
