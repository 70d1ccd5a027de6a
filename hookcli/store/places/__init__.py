"""Open, lock, read and write run folders, on this machine and in storages such as S3."""
