import json
import time

import pytest
from click.testing import CliRunner

from edgemeter.agent.contract.health import Clock, Disk, LastStop, RecentRuns, Sensor
from edgemeter.provisioning.cli.main import fleet as fleet_command
from edgemeter.provisioning.health import overview
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.certificates import Certificate
from edgemeter.provisioning.registry.devices import Device
from tests.provisioning.health.conftest import Lab, S

DAY = 86_400 * S


def fleet(*arguments):
    """Return what `edgemeter fleet ...` printed, as long as it ended well."""
    result = CliRunner().invoke(fleet_command, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def lab(tmp_path):
    """Return a lab with one device of each kind of trouble, and the present as its clock."""
    lab = Lab(tmp_path)
    lab.now_ns = time.time_ns()
    device_tables = (
        '[device.pi-new]\nboard = "pi5"\n[device.pi-good]\nboard = "pi5"\ntags = ["coral"]\n'
    )
    lab.folder.fleet_file.write_text(f'fleet = "lab"\n[server]\nbroker = "b"\n{device_tables}')
    sound = {
        "board": "Raspberry Pi 5 Model B Rev 1.0",
        "told_ns": lab.now_ns,
        "clock": Clock(is_synchronised=True),
        "disk": Disk(free_bytes=20 * 10**9, size_bytes=30 * 10**9),
        "certificate_not_after_ns": lab.now_ns + 300 * DAY,
        "runs": RecentRuns(
            last_ns=lab.now_ns - 3600 * S, last_verdict="ok", verdicts={"ok": 97, "disturbed": 3}
        ),
        "sensors": (Sensor(name="pi5_pmic", id="pi5_pmic", scope="soc-rails"),),
    }
    lab.says("pi-good", "online", **sound)
    lab.says("pi-lost", "lost", **sound)
    lab.says("pi-card", "online", **{**sound, "certificate_not_after_ns": lab.now_ns + 5 * DAY})
    lab.says(
        "pi-full", "online", **{**sound, "disk": Disk(free_bytes=10**8, size_bytes=30 * 10**9)}
    )
    lab.says(
        "pi-dark",
        "online",
        **{**sound, "last_words": LastStop(kind="power-loss", text="the board went down")},
    )
    lab.passes(1)
    with lab.registry.transaction() as connection:
        devices.put(connection, Device("pi-asks", "lab", "1000", "pi5", (), "pending", 5))
    yield lab
    lab.registry.close()


def test_the_most_urgent_comes_first(lab):
    """Lost devices come first, then those with something that runs out; healthy ones come last."""
    order = [line.device.device for line in overview.read(lab.folder, lab.registry, lab.now_ns)]
    assert order == ["pi-lost", "pi-card", "pi-asks", "pi-full", "pi-dark", "pi-good", "pi-new"]


def test_the_table_shows_what_each_device_reported(lab):
    """A row has board, agent, last run, and the issue with its remedy; the sheet has the rest."""
    text = fleet("--folder", lab.folder.path, "list")
    rows = {line.split()[0]: line for line in text.splitlines() if line}
    for cell in ("pi5", "online", "1.0", "measured 1 h ago, ok"):
        assert cell in rows["pi-good"]
    for device, issue in (
        ("pi-lost", "; check its power and its network"),
        (
            "pi-card",
            (
                "its certificate expires in 5 d; `edgemeter fleet logs --on pi-card` shows why "
                "it was not renewed"
            ),
        ),
        ("pi-asks", "waits for approval; `edgemeter fleet accept pi-asks`"),
        ("pi-full", "its disk is full: 100 MB free; free space, or replace its card"),
    ):
        assert issue in rows[device]
    assert "7 devices: 4 online, 1 lost, 1 pending, 1 not joined" in text
    sheet = fleet("--folder", lab.folder.path, "show", "pi-good")
    for cell in (
        "coral",
        "97 ok, 3 disturbed",
        "pi5_pmic",
        "expires 20",
        "synchronised",
        "20 GB of 30 GB free",
    ):
        assert cell in sheet


def test_a_device_without_a_health_report_has_no_empty_columns(tmp_path):
    """A note says what is missing for a device that delivered runs before its agent was started."""
    lab = Lab(tmp_path)
    lab.now_ns = time.time_ns()
    lab.says("pi-1", "offline")
    lab.passes(1)
    heading, row, *_ = fleet("--folder", tmp_path, "list").splitlines()
    assert heading.split() == ["device", "presence", "issue"]
    assert row.endswith("ago without a health report; start its agent there, `edgemeter agent up`")
    lab.registry.close()


def test_a_ban_is_listed_first_with_its_end(lab):
    """A device that is not in the registry can be banned, too; an unknown name is an error."""
    with lab.registry.transaction() as connection:
        for device in ("pi-good", "pi-9"):
            certificates.ban_device(connection, lab.registry, device, "it floods", lab.now_ns)
    documents = json.loads(fleet("--folder", lab.folder.path, "list", "--format", "json"))[
        "devices"
    ]
    assert [(document["device"], document["presence"]) for document in documents[:2]] == [
        ("pi-9", "banned"),
        ("pi-good", "banned"),
    ]
    assert documents[0]["issues"][0]["text"].endswith("it floods")
    result = CliRunner().invoke(fleet_command, ["--folder", str(lab.folder.path), "show", "pi-8"])
    assert "no device is named 'pi-8'" in str(result.exception)


def test_what_a_device_cannot_be_is_marked_and_not_shown(tmp_path):
    """Impossible values are marked, and each device stays on one line.

    They are a certificate that is valid for centuries, and text that changes the direction of
    writing.
    """
    lab = Lab(tmp_path)
    lab.now_ns = time.time_ns()
    evil = "a\nb\u202ec\u2066d"
    sensors = (Sensor(name=evil, trouble=evil),)
    lab.says(
        "pi-1",
        "online",
        agent=evil,
        certificate_not_after_ns=(reported_ns := lab.now_ns + 80_000 * DAY),
        sensors=sensors,
    )
    lab.passes(1)
    with lab.registry.transaction() as connection:
        certificates.put(
            connection, Certificate("1", "pi-1", "100", "key", "pem", 0, lab.now_ns + 200 * DAY)
        )
    text = fleet("--folder", tmp_path, "list")
    (row,) = [line for line in text.splitlines() if line.startswith("pi-1 ")]
    assert row.isprintable()
    sheet = fleet("--folder", tmp_path, "show", "pi-1")
    assert time.strftime("expires %Y-%m-%d", time.gmtime((lab.now_ns + 200 * DAY) / S)) in sheet
    for output in (text, sheet):
        assert "\u202e" not in output
        assert "it reports what cannot be true: certificate" in output
    document = json.loads(fleet("--folder", tmp_path, "show", "pi-1", "--format", "json"))
    assert [issue["kind"] for issue in document["issues"]] == ["implausible", "sensor"]
    assert document["said"]["certificate_not_after_ns"] == reported_ns
    lab.registry.close()
