"""What travels between a run and its policy servers: messages and weights."""
