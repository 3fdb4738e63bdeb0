"""The page: what the ledger holds, to look at in a browser: served by the collector, or written as one file that works offline."""
