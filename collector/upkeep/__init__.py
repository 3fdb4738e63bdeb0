"""Maintenance of a ledger: copies, its disk space, and requests for records to be sent again."""
