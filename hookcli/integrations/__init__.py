"""Integrations of hookcli into other programs: pytest."""
