"""The health of devices: what they report, their canary runs against their own baseline, and what needs attention."""
