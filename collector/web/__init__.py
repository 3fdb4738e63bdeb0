"""The page: the content of the ledger in a browser, served by the collector, or written as one file that works offline."""
