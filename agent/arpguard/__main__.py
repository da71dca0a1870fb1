"""`python -m arpguard`."""

from arpguard.cli.main import main

main()
