"""The configuration files that ship: complete, known to the programs that read them, and never written over anybody's own."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgemeter.agent.base import config
from edgemeter.collector.cli.collector import DEPLOY_FILES, collector
from edgemeter.collector.influx import influx_config


def compose():
    """Return the compose file as it is understood."""
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((DEPLOY_FILES / "compose.yaml").read_text())


def test_the_files_are_written_once_and_nobodys_own_is_overwritten(tmp_path):
    """A second time changes nothing; a file that was adapted stays as it is, and nothing else is written either."""
    folder = tmp_path / "deploy"
    first = CliRunner().invoke(collector, ["deploy-files", str(folder)])
    assert first.exit_code == 0
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    grafana = {
        "influxdb.yaml",
        "dashboards.yaml",
        "alerts.yaml",
        *(f"dashboards/{name}.json" for name in ("device", "energy", "fleet", "model")),
    }
    assert written == {"acl", "compose.yaml", "edgemeter-collector.service", "mosquitto.conf", *(f"grafana/{name}" for name in grafana)}
    assert CliRunner().invoke(collector, ["deploy-files", str(folder)]).exit_code == 0
    (folder / "acl").write_text("# mine\n")
    (folder / "mosquitto.conf").unlink()
    refused = CliRunner().invoke(collector, ["deploy-files", str(folder)])
    assert "differs from the shipped file" in str(refused.exception)
    assert (folder / "acl").read_text() == "# mine\n"
    assert not (folder / "mosquitto.conf").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    """A file stands where the folder would be."""
    (tmp_path / "file").touch()
    done = CliRunner().invoke(collector, ["deploy-files", str(tmp_path / "file" / "deploy")])
    assert "cannot write the files" in str(done.exception)


def test_every_setting_of_ours_that_the_files_name_is_one_that_the_product_reads(monkeypatch):
    """A variable that nobody reads would be a setting that does nothing."""
    named = {name for path in DEPLOY_FILES.rglob("*") if path.is_file() for name in re.findall(r"EDGEMETER_[A-Z_]+", path.read_text())}
    options = {option.envvar for option in collector.commands["up"].params}
    assert named - options == {"EDGEMETER_HOME", "EDGEMETER_INFLUX_TOKEN"}
    assert influx_config.TOKEN_VARIABLES[0] == "EDGEMETER_INFLUX_TOKEN"
    monkeypatch.setenv("EDGEMETER_HOME", "/ledger")
    assert config.home() == Path("/ledger")


def test_the_compose_file_is_closed_in_itself():
    """Every volume and service that one names is there, every mounted file ships or is named as to be made."""
    document = compose()
    said = (DEPLOY_FILES / "compose.yaml").read_text()
    services, volumes = document["services"], set(document["volumes"])
    assert set(services) == {"broker", "influxdb", "grafana", "collector"}
    for service in services.values():
        assert ("image" in service) != ("build" in service)
        assert set(service.get("depends_on", ())) <= set(services)
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            assert source in volumes or (DEPLOY_FILES / source).exists() or source == "./certs", mount
    assert "certs/   ca.crt, broker.crt, broker.key, collector.crt, collector.key" in said
    wanted = set(re.findall(r"\$\{([A-Z_]+)", said))
    assert wanted == set(re.findall(r"([A-Z_]+)=\.\.\.", said))


def test_what_the_compose_file_shows_to_the_world_is_the_broker_alone():
    """InfluxDB and Grafana listen on loopback: they speak no TLS."""
    ports = {name: service.get("ports", []) for name, service in compose()["services"].items()}
    assert ports == {"broker": ["8883:8883"], "influxdb": ["127.0.0.1:8086:8086"], "grafana": ["127.0.0.1:3000:3000"], "collector": []}


def test_grafana_reads_the_bucket_that_the_collector_writes():
    """One name in three places."""
    yaml = pytest.importorskip("yaml")
    (source,) = yaml.safe_load((DEPLOY_FILES / "grafana" / "influxdb.yaml").read_text())["datasources"]
    services = compose()["services"]
    bucket = services["influxdb"]["environment"]["DOCKER_INFLUXDB_INIT_BUCKET"]
    assert source["jsonData"]["dbName"] == bucket
    assert services["collector"]["environment"]["EDGEMETER_INFLUX"].endswith(f"bucket={bucket}")


def test_systemd_takes_the_unit(tmp_path):
    """`systemd-analyze verify` says nothing about it."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze")
    unit = tmp_path / "edgemeter-collector.service"
    unit.write_bytes((DEPLOY_FILES / unit.name).read_bytes())
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
