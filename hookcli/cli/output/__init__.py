"""Everything that commands print."""
