#!/usr/bin/env python3
"""An inventory for Ansible from a fleet: groups by board, tag, presence and health.

ansible-inventory -i docs/examples/ansible_inventory.py --graph
"""

import json
import re
import subprocess
import sys


def main() -> None:
    """Print the inventory, with the variables of all hosts, so that none is asked for with --host."""
    listed = subprocess.run(["edgemeter", "fleet", "list", "--json"], stdout=subprocess.PIPE, check=True).stdout
    groups: dict[str, dict[str, list[str]]] = {}
    variables = {}
    for device in json.loads(listed)["devices"]:
        if device["standing"] in {"pending", "revoked"}:
            continue
        # Ansible connects to the device's name; `Host NAME` in ssh's configuration leads it elsewhere.
        variables[device["device"]] = {f"edgemeter_{key}": device[key] for key in ("fleet", "board", "serial", "agent", "tags", "job")}
        kinds = {key: [device[key]] for key in ("fleet", "board", "presence", "health")} | {"tag": device["tags"]}
        for kind, values in kinds.items():
            for value in filter(None, values):
                name = re.sub(r"\W", "_", f"{kind}_{value}")
                groups.setdefault(name, {"hosts": []})["hosts"].append(device["device"])
    json.dump({**groups, "_meta": {"hostvars": variables}}, sys.stdout, indent=1)


main()
