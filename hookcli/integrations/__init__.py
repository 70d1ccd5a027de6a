"""Where hookcli takes part in other programs: pytest."""
