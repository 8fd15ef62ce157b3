"""Text environments: a small contract (`envs.base`), a conformance kit, and one folder an environment."""
