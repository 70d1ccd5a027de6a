"""hookcli inside other programs: pytest."""
