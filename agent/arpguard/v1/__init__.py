"""Generated from proto/arpguard/v1 by `make proto`."""
