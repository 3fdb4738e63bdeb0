"""Energy per inference on both sides, in mJ: gross (idle power is charged to what is served) and net (it is charged to nobody).

E_edge = P_idle / r + e_net; E_datacenter(u) = PUE (P_idle + (P_max - P_idle) u) / (u R_max); E_network = kappa B, or w per Mbit/s times the
megabits. All in W, 1/s and J; 1 J = 1,000 mJ.
"""

from edgemeter.collector.datacenter.constants import Network

J_PER_KWH = 3.6e6
BYTES_PER_GB = 1e9
MBIT_PER_BYTE = 8e-6


def edge_mj(idle_w: float, net_mj: float, rate_per_s: float) -> float:
    """Return the gross energy of an inference of a board that is always on and serves `rate_per_s`."""
    return idle_w / rate_per_s * 1000 + net_mj


def datacenter_mj(pue: float, idle_w: float, max_w: float, full_rate_per_s: float, utilisation_ratio: float) -> float:
    """Return the gross energy of an inference of a server that serves `utilisation_ratio` of what it could."""
    power_w = idle_w + (max_w - idle_w) * utilisation_ratio
    return pue * power_w / (utilisation_ratio * full_rate_per_s) * 1000


def datacenter_net_mj(pue: float, idle_w: float, max_w: float, full_rate_per_s: float) -> float:
    """Return the energy that one more inference adds on a server: the same at every utilisation."""
    return pue * (max_w - idle_w) / full_rate_per_s * 1000


def network_mj(network: Network, sent_bytes: float) -> float:
    """Return the energy of sending so many bytes by one estimate."""
    return mj_per_byte(network) * sent_bytes


def mj_per_byte(network: Network) -> float:
    """Return the energy of a byte by one estimate."""
    if network.kwh_per_gb is not None:
        return network.kwh_per_gb * J_PER_KWH / BYTES_PER_GB * 1000
    return MBIT_PER_BYTE * (network.w_per_mbit_per_s or 0.0) * 1000
