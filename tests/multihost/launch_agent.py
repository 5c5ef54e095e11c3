#!/usr/bin/env python3
"""Stands in for ssh when mpirun starts its daemons on test hosts: launch_agent.py SOCKET [-x...] HOST COMMAND...

Asks the process that keeps the hosts (hosts.py), since no host sees another's processes; passes it its own standard streams.
"""
import json
import socket
import sys

words = [word for word in sys.argv[2:] if not word.startswith("-x")]
with socket.socket(socket.AF_UNIX) as keeper:
    keeper.connect(sys.argv[1])
    socket.send_fds(keeper, [json.dumps([words[0], " ".join(words[1:])]).encode()], [0, 1, 2])
    sys.exit(int(keeper.recv(16) or b"255"))
