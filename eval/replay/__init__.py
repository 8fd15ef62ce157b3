"""Credit methods over recorded trajectories, side by side and without a model."""
