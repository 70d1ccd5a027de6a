"""``python -m hookcli``."""

from hookcli.cli.entry import main

main()
