"""The pages of the reference, and the function that makes each."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from edgemeter.agent.settings.files import FILES, sample
from tools.reference import commands, configuration, figures, mqtt, plug_ins, record, rules

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
NOTE = "<!-- Made from the code by `python -m tools.reference`. -->\n\n"


def index() -> str:
    lines = [
        f"- [{title}]({name}): {text}."
        for name, (title, text, _) in PAGES.items()
        if name != "index.md"
    ]
    words = "The words of the project are on the [first page](../index.md#words)."
    return f"# Reference\n\nThese pages come from the code. {words}\n\n" + "\n".join(lines) + "\n"


# By file: title, what it is about, and what makes it.
PAGES: Mapping[str, tuple[str, str, Callable[[], str]]] = {
    "index.md": ("Reference", "this list", index),
    "commands.md": (
        "Commands",
        "every command in one sentence, and the exit statuses",
        commands.page,
    ),
    "configuration.md": (
        "Configuration",
        "files, environment variables and the model card",
        configuration.page,
    ),
    "figures.md": (
        "Figures",
        "every figure of a run, the fields in InfluxDB, and the collector's metrics",
        figures.page,
    ),
    "rules.md": (
        "Rules",
        "why a run is disturbed or invalid and what to do, and which cases are compared",
        rules.page,
    ),
    "record.md": ("The run record", "every field", record.page),
    "mqtt.md": ("MQTT", "topics and messages", mqtt.page),
    "plug-ins.md": ("Plug-ins", "sensors, runtimes, generators and decoders", plug_ins.page),
}


# Files for programs, which pages link to.
ATTACHMENTS: Mapping[str, Callable[[], str]] = {
    f"samples/{kind}.toml": partial(sample, kind) for kind in FILES
}


def content(name: str) -> str:
    """Return a page, or a file for programs, as it has to be."""
    return ATTACHMENTS[name]() if name in ATTACHMENTS else NOTE + PAGES[name][2]()
