"""My benchmark: lines of `model: N fps`."""

from edgemeter.collector.published import RowCollector


class MyReader:
    def recognises(self, name, text):
        return name.endswith(".mybench")

    def read(self, text, defaults):
        collector = RowCollector(defaults)
        for number, line in enumerate(text.splitlines(), start=1):
            model, _, rate = line.partition(": ")
            collector.add(f"line {number}", model=model, figure="throughput", value=rate.removesuffix(" fps"), unit="fps")
        return collector.table()
