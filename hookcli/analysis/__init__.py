"""What finished runs say: components, similarity, probes and maps, without torch."""
