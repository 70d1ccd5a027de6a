"""Open, lock, read and write run folders, on this machine and in cloud storage such as S3."""
