"""Units of time. Inside arpguard an instant or a duration is a whole number of nanoseconds."""

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
