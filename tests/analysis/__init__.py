"""Tests of what finished runs say."""
