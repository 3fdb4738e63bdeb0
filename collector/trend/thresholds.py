"""The thresholds of the trend's method, change points: the numbers that decide what is a change.

Points are days with runs. A score is a size in standard errors of it.
"""

# The scan for steps.

# Numbers of points, and the scores from which a step is confirmed.
STEP_SCORE = ((20, 30, 40, 60, 80, 100, 120), (9.0, 8.0, 7.0, 5.8, 5.1, 4.8, 4.7))
# From this score on there is a step, which is not confirmed yet.
UNCONFIRMED_SCORE = 2.7
# For a declared change, or one in the fingerprint: one test of one day, no search.
DECLARED_SCORE = 3.3
# If an unconfirmed step had more runs on this many days since its split, and runs are this share of
# the scatter of days with one run, then runs that did not raise its score have confirmed the step:
# the threshold is lowered by this much.
CONFIRMING_DAYS, RUN_SHARE, CONFIRMED_LESS = 5, 0.55, 0.85
# Days with several runs before the split do not count as a confirmation: up to this share of them.
USUAL_RATIO = 0.25
# Days further from their level than this many standard deviations are moved this near.
CLIP = 3.0
# The fewest points after a split for a level, and before it for a baseline.
AFTER = 3
BEFORE = 8
# Splits older than this many points were scanned when they were new.
RECENT = 60
# A split of which the temperature explains more than this share is not distinguishable from it.
HIDDEN_RATIO = 0.85
# A temperature that varies less than this (degrees) is constant.
LEAST_TEMPERATURE_SD = 0.01
# The screen proves nothing for days whose known variances differ by more than this share of their
# scatter.
EVEN_RATIO = 0.1

# The walk through history.

# A scan has at most this many points, and ends at every so many, and at the newest.
WINDOW, SCAN_EVERY = 120, 5
# After this many points a step is accepted although it is not clearly larger than the smallest that
# matters.
SETTLED = 30
# The standard normal quantile of two-sided 95% intervals.
CONFIDENCE_Z = 1.959964
# The number of points by which a step may move when later points are known.
MOVES_POINTS = 10
# A rise that ends within this many days is not a step.
EPISODE_DAYS = 30
# Adjusted for temperature, a step caused by it has little of its score left, and a true one most of
# it.
SURVIVING_RATIO = 0.6
# The error of a jump due to the weather, in spreads of neighbouring days.
HIDDEN_BY_WEATHER = 1.0

# The current segment of a case.

# Only the newest segment is needed, so history is scanned in larger strides than a monitor's; every
# split is still scanned while recent.
SCAN_EVERY_FOR_NEWEST = 30
# A change of the fingerprint carries a step if Welch's p of the runs (or days) around it is below
# this, and the step matters.
CARRIED_P = 0.01

# Slow changes.

# A slow change is looked for, and reported, from this share of the smallest step that is reported.
SLOW_RATIO = 0.5
# A shorter change is a step.
SHORTEST_RAMP_DAYS = 30
# The additional chi-squared that a ramp must explain for each of its ends within the days.
BEND = 6.0
# Days that are further from the median of this many around them than the scan allows are moved
# near.
AROUND = 11
# Errors are also estimated from the sums of this many parts of at least this many days, in which
# the noise of neighbours does not cancel.
PARTS, PART_DAYS = 16, 14
# A ramp replaces a step if its chi-squared is smaller by this much.
REPLACING = 4.0
# The score of a ramp is at most this many times the largest of a step: pi / 8 * sqrt(12), that of a
# line over all days.
RAMP_OF_STEP = 1.3604

# Recurring levels.

# A level differs from its neighbour by this many standard errors, with days taken as independent.
LEVEL_SCORE = 4.0
# A step counts if the levels before and after it differ by this many standard errors, a drift if
# its slope is this many of its own.
LEVELS_APART, LEVELS_APART_SLOWLY = 3.7, 4.0
# The scatter of levels has the weight of this many additional levels, with the scatter expected
# from their days.
ASSUMED = 4
# A series with this many changes of direction goes back and forth.
REVERSALS = 2
# The position of a step may be off by this many days: steps are further apart than that.
OFF_DAYS = BEFORE - 1

# Two modes.

# A series changes between its modes at least this often, is twice in each for three points or more,
# and never for more than this many; in the newest for at most this many times its usual stay, or it
# counts as a new level.
FEWEST_MODE_CHANGES, LONGEST_STAY, LONGEST_NEWEST_STAY = 3, 120, 6
# Both have this share of the points, and are this many of their standard deviations apart.
LEAST_MODE_RATIO, MODES_APART = 0.05, 3.2
# The stays in a mode are on one level: those of two points or more scatter by no more than this
# share of the distance, and none of five or more is as near to the other mode.
SAME_RATIO = 0.25

# The noise.

# The largest lag-1 correlation assumed: beyond it, a series has hardly any level.
LAG1_MOST = 0.7
# How many points' worth of lag-1 the fit of level, temperature and step removes.
TAKEN_BY_FIT = 2.0
# The lag-1 is assumed to be at least this many of its standard errors.
UNSEEN = 0.3
# The lag-1 is itself estimated from few points: at its largest, standard errors grow by this
# factor.
POORLY_KNOWN = 0.3
# The spread of runs needs this many differences within days.
ENOUGH_DIFFERENCES = 8

# The temperature.

# Temperature is a regressor only if at least this share of the days have one.
ENOUGH_TEMPERATURES = 0.8
# Days on each side of an index for its levels, and for how the metric follows the temperature.
JUMP_LEVEL_DAYS, JUMP_FOLLOWING_DAYS = 10, 60
# A jump, and a misread day, differ by this many standard deviations of the differences of
# neighbouring days.
JUMP, MISREAD = 2.0, 5.0
# Uncertainty of a jump's size from its adjacent days, because of the weather, in the same standard
# deviations.
MARGIN = 2.0
# The metric follows a jump if it does so within this many standard errors.
FORETOLD = 2.5
# The least assumed difference of neighbouring days (degrees): sensors are read to a tenth or to
# one.
LEAST_SPREAD = 0.1

# Findings.

# First days of one cause may differ by this much beyond their intervals: boards are updated one
# after the other, and measured once a day.
SPREAD_DAYS = 2
# Days without a point, in addition to four times the usual gap, after which one is missed; after
# the second number the series is over.
MISSED_DAYS, OVER_DAYS = 3, 60
# Without the board that moved most, the others show at least this share of the type's step.
SHARED_RATIO = 0.5
