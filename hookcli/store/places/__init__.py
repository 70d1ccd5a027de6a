"""Run folders on this machine and in storages: open, lock, read and write them."""
