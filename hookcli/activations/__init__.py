"""Everything that hookcli takes from a tensor while its hook runs."""
