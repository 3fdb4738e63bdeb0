#!/usr/bin/env python3
"""An inventory for Ansible from a fleet: groups by board, tag, presence and health; hosts and users as fleet.toml names them.

EDGEMETER_ON='board=pi5 & coral' ansible-inventory -i docs/examples/ansible_inventory.py --graph
"""

import json
import os
import re
import subprocess
import sys


def main() -> None:
    """Print the inventory, with the variables of all hosts, so that none is asked for with --host."""
    # The one rule that selects devices in every command of the fleet.
    command = ["edgemeter", "fleet", "list", "--json", "--on", os.environ.get("EDGEMETER_ON", "all")]
    listed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    groups: dict[str, dict[str, list[str]]] = {}
    variables = {}
    for device in json.loads(listed)["devices"]:
        if device["standing"] in {"pending", "revoked"}:
            continue
        # Where fleet.toml has no host or user, ssh's configuration leads the device's name there.
        reached = {f"ansible_{key}": device[key] for key in ("host", "user", "port") if device.get(key)}
        known = {f"edgemeter_{key}": device[key] for key in ("fleet", "board", "serial", "agent", "tags", "job")}
        variables[device["device"]] = {**known, **reached}
        kinds = {key: [device[key]] for key in ("fleet", "board", "presence", "health")} | {"tag": device["tags"]}
        for kind, values in kinds.items():
            for value in filter(None, values):
                name = re.sub(r"\W", "_", f"{kind}_{value}")
                groups.setdefault(name, {"hosts": []})["hosts"].append(device["device"])
    json.dump({**groups, "_meta": {"hostvars": variables}}, sys.stdout, indent=1)


main()
