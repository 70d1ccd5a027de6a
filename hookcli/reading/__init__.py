"""Read run folders: return a finished run as a value, and make its page again; write nothing."""
