"""The health of devices: their reports, and what needs attention."""
