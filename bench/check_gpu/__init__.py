"""What to run first on a machine with GPUs: `make check-gpu`."""
