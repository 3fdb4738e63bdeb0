"""Facts about `docs/examples/ansible_inventory.py`: the groups of a fleet, also as the real ansible-inventory reads them."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from tests.provisioning.health.conftest import Lab

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "ansible_inventory.py"
PI = Device("pi5-01", "lab", "1000", "pi5", ("coral", "rack-a"), "accepted", None, None, None, 5)


@pytest.fixture
def environment(tmp_path):
    """Return the environment in which the example finds a fleet of four devices, one of them revoked and one that waits for approval."""
    lab = Lab(tmp_path / "fleet")
    lab.folder.fleet_file.parent.mkdir(exist_ok=True)
    lab.folder.fleet_file.write_text('fleet = "lab"\n[device.pi5-01]\nhost = "192.0.2.7"\nuser = "pi"\n')
    with lab.registry.transaction() as connection:
        for device in (
            PI,
            replace(PI, device="orin-01", serial="2000", board="jetson-orin", tags=()),
            replace(PI, device="gone", serial="3000", trust="revoked"),
            replace(PI, device="asks", serial="4000", trust="pending"),
        ):
            devices.put(connection, device)
    lab.registry.close()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "EDGEMETER_FLEET_FOLDER": str(tmp_path / "fleet"), "PATH": path}


def printed(*command, **options):
    """Return what a command prints as JSON."""
    completed = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def test_devices_are_grouped_and_carry_what_the_fleet_knows(environment):
    """In the form of a dynamic inventory; revoked and waiting devices are not in it."""
    inventory = printed(sys.executable, EXAMPLE, "--list", env=environment)
    assert set(inventory["_meta"]["hostvars"]) == {"pi5-01", "orin-01"}
    assert inventory["_meta"]["hostvars"]["pi5-01"]["edgemeter_tags"] == ["coral", "rack-a"]
    assert inventory["board_pi5"]["hosts"] == inventory["tag_rack_a"]["hosts"] == ["pi5-01"]
    assert inventory["board_jetson_orin"]["hosts"] == ["orin-01"]
    assert sorted(inventory["fleet_lab"]["hosts"]) == ["orin-01", "pi5-01"]
    assert (
        inventory["_meta"]["hostvars"]["pi5-01"].items() >= {"ansible_host": "192.0.2.7", "ansible_user": "pi", "ansible_port": 22}.items()
    )
    assert "ansible_host" not in inventory["_meta"]["hostvars"]["orin-01"]


def test_an_inventory_is_narrowed_by_the_rule_of_every_command(environment):
    """The same selection as `--on`."""
    inventory = printed(sys.executable, EXAMPLE, "--list", env={**environment, "EDGEMETER_ON": "board=pi5 & coral"})
    assert set(inventory["_meta"]["hostvars"]) == {"pi5-01"}


@pytest.mark.long
def test_ansible_itself_reads_the_inventory(environment, tmp_path):
    """From the package index, in an environment of its own that is thrown away."""
    completed = subprocess.run([sys.executable, "-m", "venv", tmp_path / "ansible"], capture_output=True, check=False)
    pip = [tmp_path / "ansible/bin/pip", "install", "--quiet", "ansible-core"]
    if completed.returncode or subprocess.run(pip, capture_output=True, check=False).returncode:
        pytest.skip("ansible-core cannot be installed here")
    program = tmp_path / "ansible/bin/ansible-inventory"
    ansible_environment = {**environment, "HOME": str(tmp_path), "ANSIBLE_HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8"}
    inventory = printed(program, "--inventory", EXAMPLE, "--list", env=ansible_environment, cwd=tmp_path)
    assert inventory["board_pi5"]["hosts"] == ["pi5-01"]
    assert "tag_coral" in inventory["all"]["children"]
    host = printed(program, "--inventory", EXAMPLE, "--host", "pi5-01", env=ansible_environment, cwd=tmp_path)
    assert (host["edgemeter_board"], host["edgemeter_serial"]) == ("pi5", "1000")
