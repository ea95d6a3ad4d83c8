"""The client's side of the line protocol that the driver of the client matrix speaks (see test/clients/doc.go)."""

import json
import sys
import threading
import time


class Unsupported(Exception):
    """The library doesn't have what was asked."""


class Stop:
    """The driver's word to end an operation in order."""

    def __init__(self):
        self._event = threading.Event()

    def set(self):
        self._event.set()

    def asked(self):
        return self._event.is_set()

    def wait(self, seconds):
        return self._event.wait(seconds)


class Out:
    """Where an operation reports what reaches the application."""

    _lock = threading.Lock()

    def __init__(self, command_id=0):
        self._id = command_id

    def write(self, **event):
        event["id"] = self._id
        with Out._lock:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()

    def records(self, records):
        if records:
            self.write(records=[[r, offset, value.decode()] for r, offset, value in records])

    def warn(self, text):
        self.write(warn=str(text))


def values(command, stop):
    """Yield the values of a produce command at its pace until its count is reached or stop is asked."""
    started, n = time.monotonic(), 0
    count, pace = command.get("count", 0), command.get("per_second", 0)
    while not stop.asked() and not (count and n == count):
        if pace:
            ahead = n / pace - (time.monotonic() - started)
            if ahead > 0 and stop.wait(ahead):
                return
        yield b"%08d-%s" % (command.get("first", 0) + n, b"vtop" * 16)
        n += 1


def _run(client, command, stop):
    out = Out(command["id"])
    try:
        acked = getattr(client, command["op"])(command, stop, out)
        out.write(done=True, acked=acked or 0)
    except Unsupported as e:
        out.write(done=True, unsupported=str(e))
    except BaseException as e:  # whatever reaches the application is the answer
        out.write(done=True, error="%s: %s" % (type(e).__name__, e))


def main(name, version, open_client):
    """Serve the driver until standard input ends. The first argument names the bootstrap servers."""
    client = open_client(sys.argv[1])
    Out().write(hello={"client": name, "version": version})
    threads, stops = [], {}
    for line in sys.stdin:
        command = json.loads(line)
        if command["op"] == "stop":
            stops[command["of"]].set()
            continue
        stops[command["id"]] = Stop()
        thread = threading.Thread(target=_run, args=(client, command, stops[command["id"]]))
        thread.start()
        threads.append(thread)
    for stop in stops.values():
        stop.set()
    for thread in threads:
        thread.join()
