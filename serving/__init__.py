"""What every server of the project shares."""
