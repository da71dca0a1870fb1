"""The running agent's kernel side: writes entries and attaches programs, reads reports, joins multicast groups."""
