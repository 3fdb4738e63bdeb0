"""Trend: what changed over days on one device, found among noise, named, and confirmed before anybody is told."""
