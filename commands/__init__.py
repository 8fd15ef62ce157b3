"""What each command does: they build the objects a configuration spells and call the packages."""
