"""The files that people write, and the environment."""

from edgemeter.agent.base.variables import VARIABLES
from edgemeter.agent.settings.files import FILES, sample
from tests.docs.reference.tables import table

HEAD = """# Configuration and environment

An option overrides its environment variable, which overrides the file, which overrides the default. `edgemeter config show` lists every
setting with its value and where it came from, `edgemeter config path` the files that are looked for, `edgemeter config check FILE` all
mistakes of a file at once.

The agent's configuration is the first of these:

1. the file in `--config` or `EDGEMETER_CONFIG`;
2. `$XDG_CONFIG_HOME/edgemeter/config.toml`, by default `~/.config/edgemeter/config.toml`;
3. `/etc/edgemeter/config.toml`.

Collector and fleet take options and environment variables; their files are those below.

## Environment variables

A variable that begins with `EDGEMETER_` and is not in these tables is reported by `edgemeter config show`. Secrets are better in files.
"""
PURPOSES = {
    "agent": "Read by every command that measures or delivers.",
    "suite": "Run with `edgemeter run FILE`.",
    "mlperf-tiny": "MLPerf Tiny's four tasks with their quality targets, unofficial: see [Sound](../tasks/audio.md).",
    "alerts": "Given by `--rules FILE` to the commands of alerts.",
    "fleet": "`fleet.toml` in the fleet's folder; `edgemeter fleet init` writes the first one.",
    "campaign": "Started with `edgemeter fleet campaign`.",
}


def page() -> str:
    """Return the page."""
    text = HEAD
    for reader, group in VARIABLES.items():
        rows = [
            (f"`{name}`", variable.meaning + (" (secret)" if variable.secret else ""), variable.default) for name, variable in group.items()
        ]
        text += f"\nRead by {reader}:\n\n{table(['variable', 'what it sets', 'default'], rows)}"
    for kind, file in FILES.items():
        text += f"\n## File: {file.what}\n\n{PURPOSES[kind]} `edgemeter config sample {kind}` prints this sample:\n"
        text += f"\n```toml\n{sample(kind)}```\n"
    return text
