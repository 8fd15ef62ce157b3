"""Writes the generated pages of docs/: `make docs`."""
