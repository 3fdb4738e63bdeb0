"""The page: what the ledger holds, in a browser: served by the collector, or written as one file that works offline."""
