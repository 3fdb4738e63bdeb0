"""Alerts: rules in TOML, each alert opened once, updated and closed, and sent to where people look."""
