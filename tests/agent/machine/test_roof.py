"""Facts about the roof: the fastest pass counts, an array is far larger than the caches, and what was disturbed is refused."""

import numpy as np

from edgemeter.agent.machine import roof


def test_an_array_is_read_whole_by_all_threads(monkeypatch):
    """Every byte once a pass, whatever the number of threads."""
    read: list[int] = []
    reduce = np.bitwise_or.reduce
    monkeypatch.setattr(roof.np, "bitwise_or", type("Counting", (), {"reduce": lambda part: (read.append(part.nbytes), reduce(part))}))
    for threads in (1, 3):
        read.clear()
        assert roof.read_gbyte_per_s(threads, 8_000_000) > 0
        assert sum(read) == roof.PASSES * 8_000_000
        assert len(read) == roof.PASSES * threads


def test_the_array_is_far_larger_than_the_caches_or_is_not_read():
    """Four times, 256 MB at least; never more than a quarter of what is free."""
    for cache_mb, available_mb, size_mb in [
        (None, None, 256), (32.0, 8000.0, 256), (105.0, 8000.0, 420), (512.0, 16_000.0, 2048), (512.0, 8000.0, None), (None, 900.0, None),
    ]:  # fmt: skip
        expected = None if size_mb is None else size_mb * 1_000_000
        assert roof.read_bytes(cache_mb, available_mb) == expected, f"{cache_mb}, {available_mb}"


def test_a_rate_is_that_of_the_fastest_product(monkeypatch):
    """A product that was held up changes nothing; they go on for a quarter of a second."""
    now, lasts_ms, products = [0], iter([5, 1, *[3] * 1000]), []

    def multiply() -> None:
        products.append(next(lasts_ms))
        now[0] += products[-1] * 1_000_000

    monkeypatch.setattr(roof.time, "monotonic_ns", lambda: now[0])
    assert roof.product_gop_per_s(multiply, 10**9) == 1000.0
    assert 250 <= sum(products) < 254


def test_measurements_that_differ_by_more_than_15_percent_are_no_roof():
    """Other work disturbed one."""
    assert roof.unsteady([85.0, 100.0], "GB/s") == []
    assert "84 and 100 GB/s" in roof.unsteady([84.0, 100.0], "GB/s")[0]
