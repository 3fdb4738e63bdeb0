"""The page shows the content of the ledger in a browser.

It is served by the collector, or written as one file that works offline.
"""
