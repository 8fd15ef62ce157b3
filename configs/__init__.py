"""The configuration schema, its layers and the shipped presets."""
