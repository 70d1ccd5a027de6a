"""The commands, one module for each, which is imported only when the command is named."""
