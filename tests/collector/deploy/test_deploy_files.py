"""Test that the shipped configuration files are complete and known to their programs.

They are never written over anybody's own.
"""

import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from edgemeter.agent.base import config
from edgemeter.agent.base.variables import VARIABLES
from edgemeter.collector.cli.collector import DEPLOY_FILES, collector, up
from edgemeter.collector.influx import influx_config
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import address_of, free_port, mosquitto


def compose():
    return yaml.safe_load((DEPLOY_FILES / "compose.yaml").read_text())


def test_the_files_are_written_once_and_nobodys_own_is_overwritten(tmp_path):
    """Writing them a second time changes nothing.

    A file that was adapted stays as it is, and nothing else is written either.
    """
    folder = tmp_path / "deploy"
    first = CliRunner().invoke(collector, ["deploy-files", str(folder)])
    assert first.exit_code == 0
    written, shipped = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (folder, DEPLOY_FILES)
    )
    assert written == shipped
    assert len(written) == 19
    assert CliRunner().invoke(collector, ["deploy-files", str(folder)]).exit_code == 0
    (folder / "acl").write_text("# mine\n")
    (folder / "mosquitto.conf").unlink()
    refused = CliRunner().invoke(collector, ["deploy-files", str(folder)])
    assert "differs from the shipped file" in str(refused.exception)
    assert (folder / "acl").read_text() == "# mine\n"
    assert not (folder / "mosquitto.conf").exists()


def test_every_setting_of_ours_that_the_files_name_is_one_that_the_product_reads(monkeypatch):
    """A variable that nobody reads would be a setting that does nothing."""
    named = {
        name
        for path in DEPLOY_FILES.rglob("*")
        if path.is_file()
        for name in re.findall(r"EDGEMETER_[A-Z_]+", path.read_text())
    }
    read = {name for variables in VARIABLES.values() for name in variables}
    assert named - {option.envvar for option in up.params} - read == set()
    assert influx_config.TOKEN_VARIABLES[0] == "EDGEMETER_INFLUX_TOKEN"
    monkeypatch.setenv("EDGEMETER_HOME", "/ledger")
    assert config.home() == Path("/ledger")


def test_the_compose_file_is_closed_in_itself():
    """Every volume and service that is named exists.

    Every mounted file ships or is named as to be made.
    """
    document = compose()
    text = (DEPLOY_FILES / "compose.yaml").read_text()
    services, volumes = document["services"], set(document["volumes"])
    assert set(services) == {"broker", "influxdb", "grafana", "setup", "collector", "alerts"}
    for service in services.values():
        assert ("image" in service) != ("build" in service)
        assert set(service.get("depends_on", ())) <= set(services)
        assert (DEPLOY_FILES / service.get("build", {}).get("dockerfile", "compose.yaml")).exists()
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            assert source in volumes or (DEPLOY_FILES / source).exists() or source == "./certs", (
                mount
            )
    assert "certs/   ca.crt, broker.crt, broker.key, collector.crt, collector.key" in text
    variables = set(re.findall(r"\$\{([A-Z_]+)", text))
    assert variables == set(re.findall(r"([A-Z_]+)=\.\.\.", text))


def test_the_world_sees_the_broker_alone_and_grafana_the_bucket_that_the_collector_writes():
    """InfluxDB and Grafana listen on loopback: they speak no TLS.

    The bucket has one name in three places.
    """
    services = compose()["services"]
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert ports == {
        "broker": ["8883:8883"],
        "influxdb": ["127.0.0.1:8086:8086"],
        "grafana": ["127.0.0.1:3000:3000"],
    }
    (source,) = yaml.safe_load((DEPLOY_FILES / "grafana" / "influxdb.yaml").read_text())[
        "datasources"
    ]
    bucket = services["influxdb"]["environment"]["DOCKER_INFLUXDB_INIT_BUCKET"]
    assert source["jsonData"]["dbName"] == bucket
    assert services["collector"]["environment"]["EDGEMETER_INFLUX"].endswith(f"bucket={bucket}")


def test_a_service_sees_only_the_token_that_it_needs():
    """The administrator's token stays with the database and its set-up.

    The collector only writes, Grafana only reads.
    """
    services = compose()["services"]
    assert {
        name
        for name, service in services.items()
        if "INFLUX_TOKEN" in str(service.get("environment"))
    } == {"influxdb", "setup"}
    mounts = {
        name: {mount.split(":")[0] for mount in service["volumes"]} & {"write-token", "read-token"}
        for name, service in services.items()
    }
    assert mounts == {
        "broker": set(), "influxdb": set(), "setup": {"write-token", "read-token"},
        "collector": {"write-token"},
        "alerts": {"write-token"}, "grafana": {"read-token"},
    }  # fmt: skip
    (source,) = yaml.safe_load((DEPLOY_FILES / "grafana" / "influxdb.yaml").read_text())[
        "datasources"
    ]
    (file,) = re.findall(r"\$__file\{(.+?)\}", source["secureJsonData"]["httpHeaderValue1"])
    assert file in services["setup"]["command"][0]
    assert services["collector"]["command"][-1] in services["setup"]["command"][0]


@pytest.mark.influx
def test_the_set_up_of_the_compose_file_makes_tokens_that_do_no_more(influx2_server, tmp_path):
    """Its own script runs twice against a real InfluxDB without a container.

    Points written with one token are read with the other.
    """
    script = compose()["services"]["setup"]["command"][0].replace("/tokens/", f"{tmp_path}/")
    program = tmp_path / "edgemeter"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m edgemeter.agent.cli.main "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "EDGEMETER_INFLUX": f"{influx2_server.url}?org={influx2_server.org}&bucket=composed",
        "EDGEMETER_INFLUX_TOKEN": influx2_server.token,
    }
    for _ in range(2):
        subprocess.run(
            ["sh", "-ec", script], env=environment, check=True, capture_output=True, timeout=300
        )
    tokens = {
        right: (tmp_path / right / "token").read_text().strip() for right in ("write", "read")
    }
    assert influx2_server.token not in tokens.values()
    assert (tmp_path / "write" / "token").stat().st_mode & 0o077 == 0
    point = b"run,device=pi-1 seq=1i 1760000000000000000"
    assert written(influx2_server, tokens["read"], point) == 403
    assert written(influx2_server, tokens["write"], point) == 204
    query = "/query?" + urllib.parse.urlencode(  # noqa: S608 - our own query
        {"db": "composed", "q": "SELECT seq FROM run", "epoch": "ns"}
    )
    (series,) = influx2_server.ask(query, token=tokens["read"])["results"][0]["series"]
    assert series["values"] == [[1760000000000000000, 1]]
    assert "series" not in str(influx2_server.ask(query, token=tokens["write"]))


def written(server, token, point):
    where = f"{server.url}/api/v2/write?" + urllib.parse.urlencode(
        {"org": server.org, "bucket": "composed"}
    )
    request = urllib.request.Request(  # noqa: S310 - loopback
        where, point, {"Authorization": f"Token {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=100) as response:  # noqa: S310
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.mosquitto
def test_an_agent_is_healthy_with_a_broker_only(tmp_path):
    """The image's check of an agent's process gives 0 while connected, 1 before."""
    (check,) = re.findall(
        r'CMD \["python", "-c", "(import psutil.+)"\]',
        (DEPLOY_FILES / "agent.Dockerfile").read_text(),
    )
    broker = mosquitto(tmp_path)
    command = [*EDGEMETER, "agent", "up", "--broker", str(address_of(broker)), "--device", "pi-1"]
    with subprocess.Popen(
        command,
        env={**os.environ, "EDGEMETER_HOME": str(tmp_path / "home")},
        stderr=subprocess.DEVNULL,
    ) as agent:
        command_of_check = [
            sys.executable,
            "-c",
            check.replace("Process(1)", f"Process({agent.pid})"),
        ]
        try:
            assert subprocess.run(command_of_check, check=False, timeout=100).returncode == 1
            broker.start()
            assert wait_until(
                lambda: subprocess.run(command_of_check, check=False, timeout=100).returncode == 0,
                60,
            )
        finally:
            agent.terminate()
            broker.kill()


@pytest.mark.services
def test_a_collector_is_healthy_while_it_serves(tmp_path):
    """The image's check of a collector gives 0 while it runs, 1 before."""
    (check,) = re.findall(
        r'CMD \["python", "-c", "(from urllib.+)"\]',
        (DEPLOY_FILES / "collector.Dockerfile").read_text(),
    )
    port = free_port()
    command_of_check = [sys.executable, "-c", check.replace("9468", str(port))]
    command = [*EDGEMETER, "collector", "up", "--port", "0"]
    environment = {
        **os.environ,
        "EDGEMETER_HOME": str(tmp_path),
        "EDGEMETER_METRICS": f"127.0.0.1:{port}",
    }

    def status():
        return subprocess.run(
            command_of_check, check=False, capture_output=True, timeout=100
        ).returncode

    assert status() == 1
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as collector:
        try:
            assert wait_until(lambda: status() == 0, 60)
        finally:
            collector.terminate()


@pytest.mark.needs("systemd-analyze")
def test_systemd_takes_every_unit(tmp_path):
    """`systemd-analyze verify` reports nothing on any unit.

    A collector that hangs is restarted by its own.
    """
    units = [Path(shutil.copy(path, tmp_path)) for path in DEPLOY_FILES.glob("edgemeter-*")]
    collector_unit = (DEPLOY_FILES / "edgemeter-collector.service").read_text()
    assert "\nType=notify\n" in collector_unit
    assert int(re.search(r"^WatchdogSec=(\d+)$", collector_unit, re.MULTILINE)[1]) >= 60
    command = ["systemd-analyze", "verify", "--man=no", *map(str, units)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (completed.returncode, completed.stderr) == (0, "")
