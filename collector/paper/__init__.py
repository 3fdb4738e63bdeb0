"""The paper kit: tables, a methods paragraph and plots of the runs that were selected, and an archive that makes them again."""
