"""The command line."""

import os

# gRPC's own log would come between the lines of a table, and into an agent's log in a form of its own: what it says
# comes as exceptions, too. It reads the variable when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
