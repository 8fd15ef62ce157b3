"""Commands about many runs: sweeps, ablations, lists and comparisons."""
