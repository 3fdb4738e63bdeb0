"""Which pages there are, and what makes each."""

from collections.abc import Callable, Mapping
from pathlib import Path

from edgemeter.agent.verdict import judge
from edgemeter.collector.compare.pairing import comparability_markdown
from tests.docs.reference import commands, figures, influx_fields, messages, parts, records, settings

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"
NOTE = "<!-- Made from the code by `python -m tests.docs.reference`: change the code, not this page. -->\n\n"


def comparability() -> str:
    """Return what must match for two cases to be compared."""
    return (
        "# What is compared with what\n\nWhat must match before two cases stand beside each other, and which figures rank with each other. "
        "A case without a match is listed, not dropped.\n\n" + comparability_markdown()
    )


def index() -> str:
    """Return the list of the pages."""
    lines = [f"- [{title}]({name}): {text}." for name, (title, text, _) in PAGES.items() if name != "index.md"]
    return "# Reference\n\nEvery page here is made from the code of this version; a test compares them.\n\n" + "\n".join(lines) + "\n"


# By file: title, what it is about, and what makes it.
PAGES: Mapping[str, tuple[str, str, Callable[[], str]]] = {
    "index.md": ("Reference", "this list", index),
    "commands.md": ("Commands", "every command with its options", commands.page),
    "configuration.md": ("Configuration and environment", "files with every key, environment variables, precedence", settings.page),
    "sensors.md": ("Power sensors", "what each measures, needs and is set by", parts.sensors_page),
    "runtimes.md": ("Runtimes", "libraries, backends, settings, and what is timed", parts.runtimes_page),
    "generators.md": ("Generators", "what generates text, its settings, and what is timed", parts.generators_page),
    "decoders.md": ("Decoders", "from a detector's outputs to boxes", parts.decoders_page),
    "record.md": ("The run record", "every field with its unit", records.page),
    "rules.md": ("Rules of the verdict", "when a run is valid, suspect or invalid", lambda: judge.rules_markdown(judge.RULES)),
    "comparability.md": ("What is compared with what", "which cases and figures stand beside each other", comparability),
    "figures.md": ("Figures", "every figure of a run, and its name in each view", figures.page),
    "metrics.md": ("Metrics", "`/metrics` and `/healthz` of the collector, and the metrics of trends and alerts", messages.metrics_page),
    "mqtt.md": ("MQTT topics", "every topic with its direction and message", messages.topics_page),
    "influxdb-fields.md": ("InfluxDB fields", "every measurement, tag and field", influx_fields.page),
}


def content(name: str) -> str:
    """Return a page as it has to be."""
    return NOTE + PAGES[name][2]()
