"""From trajectories to the rows that credit and training read."""
