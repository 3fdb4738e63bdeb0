"""The files that people write, and the environment."""

from edgemeter.agent.base.variables import VARIABLES
from edgemeter.agent.settings.files import FILES
from tests.docs.reference.tables import table

HEAD = """# Configuration and environment

An option overrides its environment variable, which overrides the file, which overrides the default. `edgemeter config show` lists every
setting with its value, where it came from and the files that are looked for, `edgemeter config check FILE` all
mistakes of a file at once.

The agent's configuration is the first of these:

1. the file in `--config` or `EDGEMETER_CONFIG`;
2. `$XDG_CONFIG_HOME/edgemeter/config.toml`, by default `~/.config/edgemeter/config.toml`;
3. `/etc/edgemeter/config.toml`.

Collector and fleet take options and environment variables; their files are those below.

## Environment variables

A variable that begins with `EDGEMETER_` and is not in these tables is reported by `edgemeter config show`. Secrets are better in files.
"""
FILES_HEAD = """
## Files

`edgemeter config sample KIND` prints a sample with every key: `##` explains, `#` is a commented default.

"""
PURPOSES = {
    "agent": "Configuration of the agent, read by every command that measures or delivers.",
    "suite": "Suite of cases, run with `edgemeter run FILE`.",
    "mlperf-tiny": "MLPerf Tiny's five tasks with their quality targets, unofficial: see [Arrays](../tasks/arrays.md).",
    "camera": "A camera's hour with a deadline, and its power modes: see [Frame rate](../tasks/camera.md).",
    "detector-study": "Eight detectors behind HTTP by the protocol of a study: see [Suites](../tasks/suites.md).",
    "alerts": "Rules and channels of alerts, `--rules FILE`.",
    "fleet": "Devices and server of a fleet, `fleet.toml` in its folder; `edgemeter fleet init` writes the first one.",
}


def page() -> str:
    """Return the page."""
    text = HEAD
    for reader, group in VARIABLES.items():
        rows = [
            (f"`{name}`", variable.meaning + (" (secret)" if variable.secret else ""), variable.default) for name, variable in group.items()
        ]
        text += f"\nRead by {reader}:\n\n{table(['variable', 'what it sets', 'default'], rows)}"
    return text + FILES_HEAD + table(["sample", "what it is"], ((f"[{kind}](samples/{kind}.toml)", PURPOSES[kind]) for kind in FILES))
