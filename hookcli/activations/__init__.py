"""Everything that is taken from a tensor while its hook runs."""
