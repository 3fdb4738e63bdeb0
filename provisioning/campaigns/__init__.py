"""Campaigns: models x devices x modes, measured group by group, with limits for power, time and failures."""
