"""An update by search: tasks are explored depth first."""
