"""Who may do what at the fleet's broker: the rules as data, and as mosquitto's two ACL files.

The rules below `edgemeter/v1` are those of a single lab's broker (`edgemeter collector deploy-files`); a test holds the two together.
Devices without a certificate come in by another port, with a token, and may ask for a certificate there and nothing else.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from edgemeter.agent.delivery.topics import ROOT
from edgemeter.agent.identity.messages import ENROL

Access = Literal["read", "write"]

COLLECTOR, SERVICE, OPERATOR = "edgemeter-collector", "edgemeter-fleet", "edgemeter-operator"
# The names of services: no device is ever called like one.
RESERVED = "edgemeter-"

DEVICE_WRITES = ("birth", "state", "result", "progress", "job", "health", "want", "renew")
DEVICE_READS = ("state", "receipt", "command", "content", "certificate")
SERVICES: Mapping[str, tuple[tuple[Access, str], ...]] = {
    COLLECTOR: (
        *(("read", f"{ROOT}/+/+/{kind}") for kind in ("result", "birth", "state", "health")),
        ("write", f"{ROOT}/+/+/receipt"),
    ),
    SERVICE: (
        *(("read", f"{ROOT}/+/+/{kind}") for kind in ("birth", "state", "health", "job", "want", "progress", "renew")),
        *(("write", f"{ROOT}/+/+/{kind}") for kind in ("command", "content", "certificate")),
    ),
    # A device that is put out cannot say so: whoever takes its session over does.
    OPERATOR: (("read", f"{ROOT}/#"), ("write", f"{ROOT}/+/+/command"), ("write", f"{ROOT}/+/+/state")),
}
# Plugs with Tasmota firmware, which have a listener of their own in conf.d: the service tells them, and hears their answers.
OF_SWITCHES: tuple[tuple[Access, str], ...] = (("read", "stat/+/+"), ("write", "cmnd/+/+"))
OF_ENROLMENT: tuple[tuple[Access, str], ...] = (("read", f"{ENROL}/+/request"), ("write", f"{ENROL}/+/answer"))


def with_certificate(revoked: Iterable[str], fleets: Iterable[str]) -> str:
    """Return the ACL of the port where every client shows a certificate: in these `fleets` a device is itself, in others nobody.

    Whoever is revoked says and hears nothing more, at once.
    """
    lines = []
    for fleet in sorted(fleets):
        lines += [f"pattern write {ROOT}/{fleet}/%u/{kind}" for kind in DEVICE_WRITES]
        lines += [f"pattern read {ROOT}/{fleet}/%u/{kind}" for kind in DEVICE_READS]
    for who, rules in SERVICES.items():
        lines += ["", f"user {who}"]
        lines += [f"topic {access} {topic}" for access, topic in (*rules, *((*OF_ENROLMENT, *OF_SWITCHES) if who == SERVICE else ()))]
    for device in sorted(revoked):
        lines += ["", f"user {device}", "topic deny #"]
    return "\n".join(lines) + "\n"


def with_token() -> str:
    """Return the ACL of the port for tokens: the user's name is the claim."""
    return f"pattern write {ENROL}/%u/request\npattern read {ENROL}/%u/answer\n"
