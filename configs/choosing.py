"""What a run's best checkpoint can be chosen by."""

CHOOSING = r"eval/(success|score|success/.+|pass_(at|hat)/[1-9][0-9]*)"
"""Metrics of an evaluation that are means over tasks, the higher the better: as a regular expression."""
