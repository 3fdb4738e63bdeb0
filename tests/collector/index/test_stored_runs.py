import contextlib

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.contract.run_figures import RUN_COLUMNS, VALUE_COLUMNS, figures_of, run_of_row
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.index.index_file import connect_index
from edgemeter.collector.index.refresh import IndexRefresher
from edgemeter.collector.index.sources import LedgerSource
from tests.fixtures.comparison_factory import make_run, no_energy
from tests.fixtures.ledgers import arrival
from tests.fixtures.record_factory import STARTED_AT_NS, make_accuracy, make_energy, violating
from tests.fixtures.rows import table_row

PUBLISHED = {"latency": "measured", "energy": "published", "accuracy": "measured"}
VARIED = {
    "usual": {},
    "digits": {"energy": make_energy(gross_mj=1 / 3, gross_u_mj=0.1 / 7, net_mj=0.1, net_u_mj=0.03)},
    "unknown uncertainty": {"energy": make_energy(gross_u_mj=None)},
    "net not resolvable": {"energy": make_energy(net_mj=None, net_u_mj=None)},
    "net below nothing": {"energy": make_energy(net_mj=-3.3, net_u_mj=7.7)},
    "published": {"provenance": PUBLISHED},
    "no energy": no_energy(),
    "no median": {"p50_ms": None},
    "bounds": {"accuracy": make_accuracy(value=0.1, low=0.1 - 1e-17, high=0.3)},
    "accuracy of nothing": {"accuracy": make_accuracy(value=0.0, low=0.0, high=0.03)},
    "throttled": {"conditions": (Condition(when="before", temperatures_c={"cpu": 61.5}, throttled_now=True),)},
    "invalid": {"verdict": violating("invalid", "clock")},
    "clock not synchronised": {"clock_synchronised": False},
    "clock ahead": {"started_at_ns": STARTED_AT_NS + 900 * NS_PER_DAY},
}


def test_every_figure_of_the_index_is_that_of_the_record_to_the_last_digit(path):
    """Also what SQL works out: bounds, relative uncertainties, the time that counts."""
    received_ns = STARTED_AT_NS + NS_PER_DAY // 3
    runs = [make_run(session=1, seq=seq, **changes) for seq, changes in enumerate(VARIED.values(), 1)]
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(run, received_ns) for run in runs])
    with contextlib.closing(connect_index(path.with_name("index"))) as connection:
        IndexRefresher(connection, LedgerSource(path)).refresh()
        columns = ", ".join((*RUN_COLUMNS, *VALUE_COLUMNS))
        rows = connection.execute(f"SELECT {columns} FROM runs ORDER BY row").fetchall()  # noqa: S608 - our own names
    for name, run, row in zip(VARIED, runs, rows, strict=True):
        with table_row(name):
            assert run_of_row(row)._replace(fingerprint=0) == figures_of(run, received_ns)
