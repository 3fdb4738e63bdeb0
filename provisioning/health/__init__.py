"""The health of devices: what they report, and what needs attention."""
