"""A run's side of its policy servers: connections, repeated calls, and weights on their way out."""
