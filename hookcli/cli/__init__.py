"""Turn options of the command line into requests, call the verb, and print what it returns."""
