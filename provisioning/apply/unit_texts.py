"""Units that are written for one device: its governor, and the Python that its supervisor runs with."""

_GOVERNOR = """[Unit]
Description=Edgemeter: the CPU governor that fleet.toml names
After=cpufrequtils.service ondemand.service raspi-config.service nvpmodel.service
Before=edgemeter-agent.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'for file in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo {} > $file; done'

[Install]
WantedBy=multi-user.target
"""
_PYTHON_DROP_IN = "[Service]\nExecStart=\nExecStart={} /opt/edgemeter/supervisor.py\n"


def governor(name: str) -> str:
    """Return the unit that sets the CPU governor at each boot; the device has found that `name` is a plain word."""
    return _GOVERNOR.format(name)


def supervisor_python(path: str) -> str:
    """Return the drop-in that lets the supervisor run with the interpreter at `path`."""
    return _PYTHON_DROP_IN.format(path)
