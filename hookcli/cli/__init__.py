"""The command line: turns options into a request, calls the verb, and prints its outcome."""
