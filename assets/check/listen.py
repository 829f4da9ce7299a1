import os, select, socket, struct, sys, time
# Listens on a port that the kernel chooses, and on one that is given (0: none), until standard input or the time ends.
seconds, six, given = float(sys.argv[1]), sys.argv[2] == "6", int(sys.argv[3])
def listen(port):
    s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", port))
    s.listen(128)
    return s
listeners = []
for label, port in (("ephemeral", 0), ("given", given)):
    if label == "given" and not port:
        continue
    try:
        listeners.append(listen(port))
        print("listens", label, listeners[-1].getsockname()[1])
    except OSError as e:
        print("cannot", label, e)
print("ready")
sys.stdout.flush()
end, clients = time.time() + seconds, []
while time.time() < end:
    for s in select.select(listeners + clients + [0], [], [], max(0.0, end - time.time()))[0]:
        if s == 0:
            if not os.read(0, 4096):
                sys.exit(0)
        elif s in listeners:
            c = s.accept()[0]
            # The side that closes first keeps its port for a while: that should be the peer; our end resets.
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            clients.append(c)
            if len(clients) > 200:
                clients.pop(0).close()
        else:
            clients.remove(s)
            s.close()
