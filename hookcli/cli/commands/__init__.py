"""The commands: one module each, imported only when the user names the command."""
