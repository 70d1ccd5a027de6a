"""Analyse finished runs without torch: components, similarity, probes and maps."""
