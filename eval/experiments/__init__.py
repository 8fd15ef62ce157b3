"""Many runs as one question: sweeps and ablations, their runner, statistics, tables and pictures."""
