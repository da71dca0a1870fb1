"""`arpguard replay`: its options, the command, and the page that it prints. The judging is `dataplane.replay`'s."""
