"""From a configuration to the objects it spells. The only place that reads its sections."""
