"""Measuring as commands and functions ask for it: settings and suites in, stored records out."""
