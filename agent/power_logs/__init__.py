"""Logs of finished runs, as other tools write them."""
