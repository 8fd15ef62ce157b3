"""Playing groups of trajectories: an event loop between the policy and the environments."""
