"""What several stages are made of."""
