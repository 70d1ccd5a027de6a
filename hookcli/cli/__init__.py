"""Flags in, one config, one call, one result, exit code out. torch is imported inside commands only."""
