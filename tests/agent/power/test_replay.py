import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.power.replay import ReplaySensor
from tests.fixtures.rows import table_row


class _Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return int(self.now_s * 1e9)


def _write(tmp_path, **document):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_a_recording_is_played_from_its_start_and_again(tmp_path):
    """It is interpolated between its points and repeated, on the given clock."""
    clock = _Clock()
    sensor = ReplaySensor(
        _write(tmp_path, scope="module", t_s=[50, 51, 53], power_w=[2.0, 4.0, 8.0]), clock=clock
    )
    played = []
    for _ in range(8):
        played.append(sensor.read().power_w)
        clock.now_s += 0.5
    assert played == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 2.0, 3.0]
    assert sensor.read().taken_ns == int(clock.now_s * 1e9)


def test_a_recording_names_its_sensor(tmp_path):
    """The sensor's identity is kept, marked as a replay; what is not stated is unknown.

    The spacing of the points is the period.
    """
    path = _write(
        tmp_path,
        id="ina226",
        scope="board-input",
        excludes=["x"],
        resolution_w=0.1,
        t_s=[0, 0.5, 1],
        power_w=[1, 1, 1],
    )
    description = ReplaySensor(path).describe()
    assert description.id == "replay:ina226"
    assert description.scope == "board-input"
    assert description.excludes == ("x",)
    assert description.period_ms == 500.0
    assert (description.resolution_w, description.gain_u_ratio, description.kind) == (
        0.1,
        None,
        "power",
    )


def test_a_csv_needs_its_scope_from_the_configuration(tmp_path):
    """Columns are found by name and others ignored; a figure must have a scope."""
    path = tmp_path / "trace.csv"
    path.write_text("t_s,volt_v,power_w\n0,5,3.5\n0.1,5,3.6\n")
    assert ReplaySensor(str(path), scope="wall-ac").describe().scope == "wall-ac"
    with pytest.raises(
        ConfigError, match=r"states no scope: set scope = \"board-input\" in \[sensors.replay\]"
    ):
        ReplaySensor(str(path)).describe()
    with pytest.raises(ConfigError, match="'everything'"):
        ReplaySensor(str(path), scope="everything").describe()


def test_what_is_no_recording_is_refused_by_name(tmp_path):
    """Empty, truncated and malformed files are refused.

    So are a single point, times that stand still or go back, values that are no numbers, and wrong
    columns or keys.
    """
    for content in [
        "",
        "{not json",
        "t_s,power_w\n0,1\n",
        "t_s,power_w\n1,1\n0,2\n",
        "t_s,power_w\n0,1\n1,nan\n",
        '{"scope": "module", "t_s": [0, 1], "power_w": [1, 2], "period_ms": -5}',
        "seconds,watts\n0,1\n1,2\n",
        '{"scope": "module", "t_s": [0, 1], "power_w": [1]}',
        '{"scope": "module", "t_s": [0, 1], "power_w": [1, 2], "powr": 1}',
        '{"scope": "all", "t_s": [0, 1], "power_w": [1, 2]}',
    ]:
        path = tmp_path / "trace"
        path.write_text(content)
        with table_row(content), pytest.raises(ConfigError, match="trace"):
            ReplaySensor(str(path), scope="module").describe()
