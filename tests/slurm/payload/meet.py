"""A job's program without its model: all ranks meet at the master's address, add up their numbers, and print their environment."""

import os
import socket
import sys
import time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def lead():
    server = socket.create_server(place, reuse_port=False)
    others = {}
    while len(others) < world - 1:
        peer, _ = server.accept()
        # A gate that only looks whether the port is open says nothing.
        word = peer.recv(16)
        if word:
            others[int(word)] = peer
    total = sum(others)
    for peer in others.values():
        peer.sendall(str(total).encode())
    return total


def follow():
    end = time.monotonic() + 60
    while True:
        try:
            peer = socket.create_connection(place, timeout=60)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
    peer.sendall(str(rank).encode())
    return int(peer.recv(16))


total = lead() if rank == 0 else follow()
print(f"Initialized process group with {world} processes")
print(f"sum {total} args {sys.argv[1:]}")
for name, value in sorted(os.environ.items()):
    if "\n" not in value:
        print(f"env {name}={value}")
