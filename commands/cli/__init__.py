"""The command line, declared by subject; `commands` does the work."""
