"""Compare two runs, or one model run in two ways: which layer differs first."""
