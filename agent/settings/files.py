"""The files that people write: a sample of each, and all mistakes in one at once.

The files are configuration, suite, rules and fleet. Also every setting of this machine with its
value and source: option, environment, file or default.
"""

import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from edgemeter.agent import power, runtimes
from edgemeter.agent.base import config
from edgemeter.agent.base.broker_url import files_of
from edgemeter.agent.base.config import Config
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.base.toml import parse_toml
from edgemeter.agent.base.toml_mistakes import Mistake, mistakes, without
from edgemeter.agent.contract import case_settings, suite
from edgemeter.agent.contract.suite import SuiteFile
from edgemeter.agent.settings.case_keys import setting_texts


@dataclass(frozen=True, slots=True)
class FileKind:
    """One kind of file, as `module:attribute`.

    It has its document, its sample, and a function that checks a file with valid keys.
    """

    what: str
    document: str
    sample: str
    faults: str = ""


SAMPLE = Path(__file__).with_name("sample_suite.toml")
MLPERF_TINY = Path(__file__).with_name("mlperf_tiny_suite.toml")
DETECTOR_STUDY = Path(__file__).with_name("detector_study_suite.toml")
CAMERA = Path(__file__).with_name("camera_suite.toml")


def _suite(title: str, sample: str) -> FileKind:
    module = "edgemeter.agent.settings.files"
    return FileKind(
        title,
        "edgemeter.agent.contract.suite:SuiteFile",
        f"{module}:{sample}",
        f"{module}:faults_of_suite",
    )


FILES: Mapping[str, FileKind] = {
    "agent": FileKind(
        "configuration of the agent", "edgemeter.agent.base.config:Config",
        "edgemeter.agent.base.config:SAMPLE",
    ),
    "suite": _suite("suite of cases", "SAMPLE"),
    "mlperf-tiny": _suite("suite of MLPerf Tiny's four tasks", "MLPERF_TINY"),
    "detector-study": _suite("suite of a study of eight detectors", "DETECTOR_STUDY"),
    "camera": _suite("suite of a camera's hour", "CAMERA"),
    "alerts": FileKind(
        "rules and channels of alerts", "edgemeter.collector.alerts.rules:AlertRules",
        "edgemeter.collector.alerts.rules:SAMPLE", "edgemeter.collector.alerts.rules:faults",
    ),
    "fleet": FileKind(
        "devices and server of a fleet", "edgemeter.provisioning.inventory.fleet_file:FleetFile",
        "edgemeter.provisioning.inventory.fleet_file:SAMPLE",
        "edgemeter.provisioning.inventory.fleet_file:faults",
    ),
}  # fmt: skip


def sample(kind: str) -> str:
    """Return a complete sample of a file.

    In it `##` explains, and `#` is a commented default; the agent's has the table of every sensor.

    Raises:
        ConfigError: there is no such kind of file.
    """
    path: Path = resolve_name(_known(kind).sample)
    text = path.read_text(encoding="utf-8")
    if kind == "suite":
        return _explained(text)
    if kind != "agent":
        return text
    tables = (power.example(name).splitlines() for name in power.SENSORS)
    return text + "".join(
        "\n" + "".join(f"# {line.removeprefix('# ')}\n" for line in lines)
        for lines in tables
        if lines and lines[0] not in text
    )


def check_file(path: Path, kind: str | None = None) -> tuple[str, list[Mistake]]:
    """Return the kind of file (None: detected by its keys), and every mistake in it.

    Raises:
        ConfigError: it cannot be read, is not TOML (the line is named), or there is no such kind.
    """
    content = parse_toml(path, "file")
    kind = kind or _kind_of(content)
    file_kind = _known(kind)
    document = resolve_name(file_kind.document)
    all_mistakes = mistakes(content, document)
    if kind == "agent":
        all_mistakes += [*_wrong_choice(content), *_wrong_sensors(content.get("sensors"))]
    try:
        remaining = msgspec.convert(without(content, all_mistakes), document)
    except msgspec.ValidationError:
        # A required key is missing: the whole can be checked only with it.
        return kind, all_mistakes
    faults: Iterable[Mistake | str] = (
        resolve_name(file_kind.faults)(remaining, path) if file_kind.faults else ()
    )
    return kind, [
        *all_mistakes,
        *(fault if isinstance(fault, Mistake) else Mistake("", "", fault) for fault in faults),
    ]


def faults_of_suite(document: SuiteFile, path: Path) -> Iterator[Mistake]:
    """Yield the faults of each case.

    A fault is a missing model or data set, an unknown runtime, or keys that exclude each other.
    """
    for number, case in enumerate(document.case, start=1):
        section = f"[[case]] number {number}"
        try:
            single = suite.expand(
                msgspec.structs.replace(document, case=[case]), path.resolve().parent
            )
        except ConfigError as error:
            yield Mistake(
                section, "", str(error).replace(f"suite {document.name!r}, case 1", "this case")
            )
            continue
        for single_case in single.cases:
            if single_case.runtime not in runtimes.names():
                yield Mistake(
                    section,
                    "runtime",
                    f"is {single_case.runtime!r}, which is not a runtime: "
                    f"{near(single_case.runtime, runtimes.names())}",
                )
        for key in ("model", "data", "annotations"):
            for name in dict.fromkeys(getattr(single_case, key) for single_case in single.cases):
                if name is not None and not Path(name).exists():
                    yield Mistake(
                        section,
                        key,
                        f"is {name!r}, but there is no such file: paths are relative to the suite",
                    )


def _wrong_choice(content: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the unknown sensors in `power`."""
    tables, power_names = content.get("sensors"), content.get("power")
    table_names = list(tables) if isinstance(tables, dict) else []
    names = [*power.names(), *(name for name in table_names if name not in power.names())]
    for name in power_names if isinstance(power_names, list) else ():
        if isinstance(name, str) and name not in names:
            yield Mistake(
                "", "power", f"has {name!r}, which is not a power sensor: {near(name, names)}"
            )


def _wrong_sensors(tables: object) -> Iterator[Mistake]:
    """Yield the keys of [sensors.NAME] that the sensor does not know, and invalid values."""
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if not isinstance(table, dict):
            continue
        section, kind = f"[sensors.{name}]", table.get("type", name)
        if kind not in power.names():
            yield Mistake(
                section,
                "type",
                f"is {'' if 'type' in table else 'by default '}{kind!r}, which is not a power "
                f"sensor: {near(str(kind), power.names())}",
            )
            continue
        keys = power.settings_of(kind)
        valid = {
            key: value for key, value in table.items() if key in keys and power.is_setting(value)
        }
        for key, value in table.items():
            if key not in keys:
                yield Mistake(section, key, f"is not a key: {near(key, keys)}")
            elif key not in valid:
                yield Mistake(section, key, f"has to be a text or a number, not {value!r}")
        try:
            power.create(name, **valid).close()
        except ConfigError as error:
            yield Mistake(section, "", str(error).removeprefix(f"{section} "))


def _explained(text: str) -> str:
    """Return the sample of a suite with the text of each key above its first line."""
    meanings, annotations = {**setting_texts()}, get_type_hints(case_settings.Settings)
    head, mark, tables = text.partition("[defaults]\n")
    lines = []
    for line in tables.splitlines():
        key = line.removeprefix("# ").partition(" = ")[0]
        if meaning := meanings.pop(key, ""):
            choices = [
                choice
                for kind in get_args(annotations[key])
                if get_origin(kind) is Literal
                for choice in get_args(kind)
            ]
            meaning += f" Choices: {', '.join(choices)}." * bool(choices)
            lines += textwrap.wrap(
                meaning, 140, initial_indent="## ", subsequent_indent="## ", break_on_hyphens=False
            )
        lines.append(line)
    return head + mark + "".join(f"{line}\n" for line in lines)


def _known(kind: str) -> FileKind:
    if kind in FILES:
        return FILES[kind]
    raise ConfigError(f"no file is called {kind!r}: {near(kind, FILES)}")


def _kind_of(content: Mapping[str, Any]) -> str:
    def likeness(kind: str) -> tuple[int, int]:
        document = resolve_name(FILES[kind].document)
        keys = {field.encode_name for field in msgspec.structs.fields(document)}
        # `device` is a name in one file and a table in another.
        return len(content.keys() & keys), -sum(
            len(mistake.place) <= 1 for mistake in mistakes(content, document)
        )

    return max(FILES, key=likeness)


# The environment variable of a setting; others are set by the file only.
VARIABLE_OF: Mapping[str, str] = {
    "device": "EDGEMETER_DEVICE",
    "fleet": "EDGEMETER_FLEET",
    "broker": "EDGEMETER_BROKER",
    "power": "EDGEMETER_POWER",
    "signing_key_file": "EDGEMETER_SIGNING_KEY_FILE",
}
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of this machine, with its value and source.

    `value` is as in TOML, None if unset; `source` is an option, a variable, a file, or `default`.
    """

    key: str
    value: Any
    source: str


def settings(
    path: Path | None, named: Mapping[str, object], environ: Mapping[str, str] = os.environ
) -> list[Setting]:
    """Return every setting; `named` are those of the command line, by their keys.

    Settings of sensors are named `sensors.NAME.KEY`.

    Raises:
        ConfigError: the configuration cannot be read, or has a wrong or unknown key.
    """
    file = path or config.file_in_use()
    written = Config() if file is None else config.read_file(file)
    certified, file_keys = (
        config.as_certified(written),
        set(msgspec.toml.decode(file.read_bytes()) if file else ()),
    )
    home_variable = next(
        (name for name in ("EDGEMETER_HOME", "XDG_DATA_HOME") if environ.get(name)), DEFAULT
    )
    all_settings = [Setting("home", str(config.home()), home_variable)]
    for field in msgspec.structs.fields(Config):
        key = field.name
        if key == "sensors":
            continue
        value, source = getattr(certified, key), str(file) if key in file_keys else DEFAULT
        if value != getattr(written, key):
            source = f"identity.json beside {files_of(certified.broker or '').get('certificate')}"
        if key == "device" and value is None:
            value, source = config.this_device(), "default: the host name"
        if environ.get(variable := VARIABLE_OF.get(key, "")):
            value, source = environ[variable], variable
        if named.get(key) is not None:
            value, source = str(named[key]), f"--{key.replace('_', '-')}"
        all_settings.append(
            Setting(key, list(value) if isinstance(value, tuple) else value, source)
        )
    all_settings += [
        Setting(f"sensors.{name}.{key}", value, str(file))
        for name, table in written.sensors.items()
        for key, value in table.items()
    ]
    return all_settings
