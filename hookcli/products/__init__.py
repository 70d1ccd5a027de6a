"""What a run makes, one module for each kind: its cost, what it collects, and what it writes."""
