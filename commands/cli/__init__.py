"""The command line, declared by subject; other modules of `commands` do the work."""
