"""The command line: flags in, one request, one call, one result, exit code out."""
