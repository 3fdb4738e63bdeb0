"""Where runs are read from: ledgers and documents; the selection of some of them, and the cases that they belong to."""
