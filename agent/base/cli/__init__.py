"""Options, groups, printing and progress that the commands of all packages share.

Only commands import it.
"""
