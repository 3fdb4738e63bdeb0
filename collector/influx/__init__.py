"""InfluxDB: points, the drain from the ledger, and reading by InfluxQL."""
