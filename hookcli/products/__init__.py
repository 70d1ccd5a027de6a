"""What a run makes, one file for each kind: what it costs, what it collects, and what it writes."""
