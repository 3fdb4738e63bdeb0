"""The server side: receive, store, compare and show results."""
