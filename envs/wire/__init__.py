"""What travels between a client and an environment server."""
