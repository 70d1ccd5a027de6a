"""Two runs, or one model run two ways: which layer differs first."""
