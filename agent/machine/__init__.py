"""What stands around a run: the machine, its clock, its conditions."""
