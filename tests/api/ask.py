"""Asks an agent for its status over mutual TLS: ask.py TARGET CA [CERT KEY].

Prints the node's name, or the status code.
"""

import sys
from pathlib import Path

import grpc

from arpguard.v1 import agent_pb2 as pb
from arpguard.v1 import agent_pb2_grpc

target, ca, *own = sys.argv[1:]
cert, key = (Path(path).read_bytes() for path in own) if own else (None, None)
credentials = grpc.ssl_channel_credentials(Path(ca).read_bytes(), key, cert)
with grpc.secure_channel(target, credentials) as channel:
    try:
        print(agent_pb2_grpc.AgentServiceStub(channel).GetStatus(pb.GetStatusRequest(), timeout=300).node)
    except grpc.RpcError as error:
        print(error.code().name)
