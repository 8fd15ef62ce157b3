"""The commands: each builds the objects that a configuration describes and calls the packages."""
