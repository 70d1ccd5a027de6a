"""Run folders on this machine and in storages: opened, locked, read and written."""
