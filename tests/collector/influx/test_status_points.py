from edgemeter.collector.influx.status_points import CollectorStatus, collector_line


def test_the_lag_is_the_rows_and_the_time_that_the_oldest_of_them_waits():
    """Both are 0 where nothing waits."""
    line = collector_line(CollectorStatus("c-1", 120, 100, 3_000_000_000, 1, 2), 10_500_000_000)
    assert line.startswith("collector,collector=c-1 ")
    assert {"lag_rows=20i", "lag_s=7.5", "ledger_row=120i", "sink_row=100i", "rejected_records=1i", "quarantine_entries=2i"} == set(
        line.split(" ")[1].split(",")
    )
    assert "lag_rows=0i,lag_s=0.0" in collector_line(CollectorStatus("c-1", 100, 100, None, 0, 0), 5)
