"""Every environment variable that Edgemeter reads, with its effect and default."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """The effect and default of a variable; the value of a `secret` one is never shown."""

    meaning: str
    default: str = "none"
    secret: bool = False


# By the program that reads them.
VARIABLES: Mapping[str, Mapping[str, Variable]] = {
    "every command": {
        "EDGEMETER_HOME": Variable(
            "Folder of outbox, ledger and keys",
            "$XDG_DATA_HOME/edgemeter, else ~/.local/share/edgemeter",
        ),
        "EDGEMETER_CONFIG": Variable(
            "Configuration file",
            "$XDG_CONFIG_HOME/edgemeter/config.toml, else /etc/edgemeter/config.toml",
        ),
    },
    "agent": {
        "EDGEMETER_DEVICE": Variable(
            "Name of this device", "the configuration's, else the host name"
        ),
        "EDGEMETER_FLEET": Variable("Fleet of this device", "the configuration's, else `default`"),
        "EDGEMETER_RUN_LOCK": Variable(
            "Run lock, shared by all users of the board", "/run/lock/edgemeter-run.lock"
        ),
        "EDGEMETER_POWER": Variable(
            "Power sensors NAME[,NAME], or none", "the configuration's, else the widest scope"
        ),
        "EDGEMETER_SIGNING_KEY_FILE": Variable("Key that signs bundles", "the configuration's"),
    },
    "agent, collector and fleet": {
        "EDGEMETER_BROKER": Variable(
            "Broker: HOST[:PORT], mqtt://[USER@]HOST or "
            "mqtts://[USER@]HOST?ca=FILE&certificate=FILE&key=FILE",
            "the configuration's; for a collector its embedded one",
        ),
        "EDGEMETER_MQTT_PASSWORD": Variable("Password for the broker", secret=True),
    },
    "collector": {
        "EDGEMETER_LEDGER": Variable(
            "Ledger: a file, or postgresql://USER@HOST/DATABASE", "ledger.sqlite in $EDGEMETER_HOME"
        ),
        "EDGEMETER_GROUP": Variable("Group of collectors that share messages"),
        "EDGEMETER_METRICS": Variable("Serve /metrics and /healthz at [HOST:]PORT"),
        "EDGEMETER_ALERT_RULES": Variable("Rules of alerts (TOML)", "the built-in rules"),
        "EDGEMETER_WEB_TOKEN": Variable("Access token of the web page", secret=True),
        "EDGEMETER_INFLUX": Variable(
            "URL of an InfluxDB: http://HOST:8086[?org=ORG&bucket=BUCKET]"
        ),
        "EDGEMETER_INFLUX_TOKEN": Variable(
            "Token of the InfluxDB; version 1.8: USER:PASSWORD",
            "that in `INFLUX_TOKEN`",
            secret=True,
        ),
        "EDGEMETER_INFLUX_ORG": Variable(
            "Organisation, if the URL has none", "the token's, if it has only one"
        ),
        "EDGEMETER_INFLUX_BUCKET": Variable("Bucket, if the URL has none", "edgemeter"),
    },
    "models": {
        "EDGEMETER_MODELS": Variable("Folder of fetched models", "models in $EDGEMETER_HOME"),
        "EDGEMETER_CATALOGUE": Variable(
            "Your own catalogue of models", "catalogue.toml in $EDGEMETER_HOME"
        ),
    },
    "fleet": {
        "EDGEMETER_FLEET_FOLDER": Variable(
            "Folder of the fleet's server", "fleet in $EDGEMETER_HOME"
        ),
    },
    "first boot of a card": {
        "EDGEMETER_PREFIX": Variable("Prefix of installed paths"),
        "EDGEMETER_SYSTEMCTL": Variable("Command of the service manager", "systemctl"),
    },
}


# The password in an address.
_PASSWORD = re.compile(r"((?<=://)[^/@:]*:|[?&](?:ssl)?password=)[^&]*?(?=@|&|$)")


def set_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that are set, with their values; `(secret)` for a secret one."""
    return {
        name: "(secret)" if variable.secret else _PASSWORD.sub(r"\1(secret)", environ[name])
        for group in VARIABLES.values()
        for name, variable in group.items()
        if environ.get(name)
    }


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the set variables that begin with EDGEMETER_ and are unknown.

    Each is a typo, or one of another version.
    """
    names = {name for group in VARIABLES.values() for name in group}
    return sorted(name for name in environ if name.startswith("EDGEMETER_") and name not in names)
