"""`python -m bench.check_gpu`."""

from bench.check_gpu.command import main

if __name__ == "__main__":  # not in the processes that it starts
    main()
