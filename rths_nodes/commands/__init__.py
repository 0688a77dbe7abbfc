"""Sub-commands of ``rths`` that tell a story of their own; the others are in ``cli.py``."""
