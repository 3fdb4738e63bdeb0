"""What `edgemeter doctor` says of the machine: board, system, clocks, heat, supply, neighbours."""

from collections.abc import Iterator

from edgemeter.agent.doctor.finding import Finding, State
from edgemeter.agent.machine import attached, board, clock, cpu_clock, fingerprint, meminfo, temperatures, throttling, virtualisation
from edgemeter.agent.machine.machine import Machine

# Boards throttle from 80 C on (Raspberry Pi: soft limit 60 to 80 C by model).
HOT_C = 75.0
LITTLE_MEMORY_MB = 300.0


def check(machine: Machine) -> Iterator[Finding]:
    """Yield what was found out about the machine."""
    yield from _identity(machine)
    yield _system(machine)
    yield _memory(machine)
    yield _swap(machine)
    yield _clock(machine)
    yield from _speed(machine)
    yield from _heat(machine)
    yield from _supply(machine)
    yield from _accelerators(machine)


def _finding(name: str, state: State, what: str, remedy: str | None = None) -> Finding:
    return Finding(area="machine", name=name, state=state, what=what, remedy=remedy)


def _identity(machine: Machine) -> Iterator[Finding]:
    model, soc = board.model(machine), board.soc(machine)
    yield (
        _finding("board", "ok", f"{model} ({soc})" if soc else model) if model else _finding("board", "absent", "it does not give its name")
    )
    cores = board.cores(machine)
    yield _finding("processor", "ok", f"{board.cpu(machine) or machine.arch}, {cores or 'an unknown number of'} cores")
    guest = virtualisation.detect(machine)
    if guest:
        yield _finding(
            "virtualisation",
            "warn",
            f"runs in {guest}: neighbours share the processor",
            "measure on the bare machine to compare it with others",
        )


def _system(machine: Machine) -> Finding:
    named = f"{fingerprint.operating_system(machine) or 'unknown system'}, kernel {machine.line('proc/sys/kernel/osrelease') or 'unknown'}"
    if fingerprint.is_32_bit() or machine.arch.startswith(("armv6", "armv7")):
        return _finding(
            "system", "warn", f"{named}, 32-bit: the runtimes publish no wheels for it", "install the 64-bit system on the card"
        )
    return _finding("system", "ok", f"{named}, {machine.arch}")


def _memory(machine: Machine) -> Finding:
    memory = meminfo.read(machine)
    if memory.total_mb is None or memory.available_mb is None:
        return _finding("memory", "absent", "the kernel does not say how much there is")
    what = f"{memory.available_mb / 1000:.1f} GB of {memory.total_mb / 1000:.1f} GB are available"
    if memory.available_mb < LITTLE_MEMORY_MB:
        return _finding("memory", "warn", what, "end other programs, or boot without a desktop")
    return _finding("memory", "ok", what)


def _swap(machine: Machine) -> Finding:
    memory = meminfo.read(machine)
    if not memory.swap_total_mb:
        return _finding("swap", "ok", "none" if memory.swap_total_mb is not None else "the kernel does not say")
    if memory.swap_used_mb:
        what = f"{memory.swap_used_mb:.0f} MB are in use: a query that waits for the disk is slow"
        return _finding("swap", "warn", what, "`sudo swapoff -a` while measuring, if memory suffices")
    return _finding("swap", "ok", f"{memory.swap_total_mb:.0f} MB, unused")


def _clock(machine: Machine) -> Finding:
    state = clock.synchronised(machine)
    if state is None:
        return _finding("wall clock", "absent", "nothing here says whether it is right")
    if state:
        return _finding("wall clock", "ok", "synchronised")
    what = "not synchronised: the stamps of records may be wrong, durations are not"
    return _finding("wall clock", "warn", what, "`sudo timedatectl set-ntp true`, or set up chrony")


def _speed(machine: Machine) -> Iterator[Finding]:
    governor = cpu_clock.governor(machine)
    if governor is None:
        yield _finding("governor", "absent", "the kernel shows no processor clock here")
    elif governor == "performance":
        yield _finding("governor", "ok", "performance")
    else:
        remedy = "`echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`"
        remedy = "`sudo jetson_clocks`" if board.is_jetson(machine) else remedy
        yield _finding("governor", "warn", f"{governor}: the clock follows the load, and so do latencies", remedy)
    mode = board.power_mode(machine)
    if mode:
        yield _finding("power mode", "ok", mode)
    elif board.is_jetson(machine):
        yield _finding(
            "power mode", "absent", "nvpmodel does not answer", "`sudo nvpmodel -q` shows the mode; run edgemeter where it may be asked"
        )


def _heat(machine: Machine) -> Iterator[Finding]:
    found = temperatures.read(machine)
    if not found:
        yield _finding("temperature", "absent", "no sensor can be read")
        return
    hottest = max(found, key=lambda name: found[name])
    what = f"{found[hottest]:.0f} C at {hottest}, the hottest of {len(found)}"
    yield (
        _finding("temperature", "warn", what, "let it cool, or give it a fan")
        if found[hottest] >= HOT_C
        else _finding("temperature", "ok", what)
    )


def _supply(machine: Machine) -> Iterator[Finding]:
    state = throttling.read(machine)
    yield _flag(
        "throttling", state.now, state.since_boot, "the processor's clock is held back", "cool the board, then reboot to clear the flag"
    )
    if state.under_voltage_now is not None or state.under_voltage_since_boot is not None:
        what = "the supply voltage is too low"
        yield _flag(
            "supply", state.under_voltage_now, state.under_voltage_since_boot, what, "use the maker's power supply and a short cable"
        )


def _flag(name: str, now: bool | None, since_boot: bool | None, what: str, remedy: str) -> Finding:  # noqa: FBT001 - three-valued claims
    if now is None and since_boot is None:
        return _finding(name, "absent", "the machine does not say")
    if now:
        return _finding(name, "bad", f"{what} now", remedy)
    if since_boot:
        return _finding(name, "warn", f"not now, but since it was switched on: {what}", remedy)
    return _finding(name, "ok", "none")


def _accelerators(machine: Machine) -> Iterator[Finding]:
    for found in attached.accelerators(machine):
        if found.endswith("at 480 Mbit/s"):
            yield _finding("accelerator", "warn", f"{found}: USB 2 makes it slow", "plug it into a blue USB 3 port, with a USB 3 cable")
        else:
            yield _finding("accelerator", "ok", found)
