"""What a run records: metrics, trajectories, alarms, progress, and their mirrors elsewhere."""
