"""English: figures as in the lists, not "Nov. 30, 2026, noon"."""

DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i"
DATETIME_FORMAT = "Y-m-d H:i"
