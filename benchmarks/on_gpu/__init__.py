"""The parts of `python -m benchmarks.gpu`, each a module whose `find` takes a Setting."""
