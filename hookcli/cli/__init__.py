"""The command line: turns options into requests, calls the verb, and prints what it returns."""
