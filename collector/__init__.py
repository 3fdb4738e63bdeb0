"""On a server: receive, keep, compare, show."""
