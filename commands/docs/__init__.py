"""Writes the generated pages of docs/ (`make docs`): credit.md, metrics.md and options.md."""
