"""The gRPC API: questions about this node, answered. It only reads."""
