"""Integrate hookcli into other programs; so far, into pytest."""
