"""A server of the fast path's protocol for tests of the wire: a few objects in memory, no rights, no conditions.

What a client makes of a real node is tested against a real node. This one is for what a real node does not do: `spoil`
may replace the reply to any request.
"""

import array
import fcntl
import hashlib
import json
import os
import socket
import struct
import tempfile
import threading

from nigh import wire

HEADER = struct.Struct("<BBHIII")
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
KEY, SECRET = "KEY", "secret"


def packet(kind, request_id, fields, body=b"", flags=0, version=1):
    text = json.dumps(fields).encode()
    return HEADER.pack(version, kind, flags, request_id, len(text), len(body)) + text + body


def sealed(data, seals=SEALS):
    """A descriptor of a segment that holds `data`."""
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.pwrite(descriptor, data, 0)
    if seals:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


class Responder:
    """Serves until it is closed. `objects` by bucket and key; `seen` are the requests."""

    def __init__(self, spoil=None):
        self.folder = tempfile.TemporaryDirectory()
        self.address = os.path.join(self.folder.name, "fast.sock")
        self.objects = {}
        self.seen = []
        self.drafts = {}
        self.spoil = spoil
        self.handles = 0
        self.connections = []
        self.accepted = 0
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.address)
        self.listener.listen(128)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            # Room for more than a packet may hold.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            self.connections.append(connection)
            threading.Thread(target=self.serve_and_close, args=(connection,), daemon=True).start()

    def serve_and_close(self, connection):
        with connection:
            self.serve(connection)

    def break_connections(self):
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.connections.clear()

    def close(self):
        self.listener.close()
        self.break_connections()
        self.folder.cleanup()

    def operations(self):
        return [operation for operation, _ in self.seen]

    def released(self):
        """The handles that clients have let go."""
        apart = [[fields["handle"]] if operation == wire.RELEASE else [] for operation, fields in self.seen]
        with_reads = [fields.get("released", []) for _, fields in self.seen]
        return [handle for handles in (*apart, *with_reads) for handle in handles]

    def serve(self, connection):
        nonce = os.urandom(16).hex()
        connection.send(packet(wire.GREETING, 0, {"nonce": nonce}))
        while True:
            try:
                received = connection.recv(wire.PACKET_BYTES_MAX)
            except OSError:
                return
            if not received:
                return
            _, operation, _, request_id, text_bytes, _ = HEADER.unpack_from(received)
            fields = json.loads(received[16 : 16 + text_bytes])
            body = received[16 + text_bytes :]
            if operation == wire.HELLO:
                good = fields == {"access_key": KEY, "mac": wire.proof(SECRET, nonce)}
                connection.send(packet(wire.ANSWER if good else wire.FATAL, request_id, {} if good else self.no(403)))
                continue
            self.seen.append((operation, fields))
            reply = self.spoil and self.spoil(operation, request_id, fields)
            if not reply:
                reply = self.answer(operation, request_id, fields, body)
            if reply == "hang":
                continue
            if reply == "hang up":
                connection.shutdown(socket.SHUT_RDWR)
                return
            if reply:
                self.send(connection, *reply)

    @staticmethod
    def send(connection, data, *descriptors):
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            connection.sendmsg([data], rights)
        except OSError:
            pass
        for descriptor in descriptors:
            os.close(descriptor)

    @staticmethod
    def no(status, code="NoSuchKey"):
        return {"status": status, "code": code, "message": f"no: {code}", "headers": {"x-amz-request-id": "R"}}

    def answer(self, operation, request_id, fields, body):
        if operation in (wire.RELEASE, wire.ABANDON):
            self.drafts.pop(fields["handle"], None)
            return None
        if operation in (wire.GET, wire.HEAD):
            return self.read(operation, request_id, fields)
        if operation == wire.CREATE:
            self.handles += 1
            descriptor = os.memfd_create("draft", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
            os.ftruncate(descriptor, fields["length"])
            self.drafts[self.handles] = os.dup(descriptor)
            made = {"status": 200, "handle": self.handles, "length": fields["length"]}
            return packet(wire.ANSWER, request_id, made), descriptor
        if operation == wire.COMMIT:
            descriptor = self.drafts[fields["handle"]]
            try:
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
            except OSError:
                return (packet(wire.ANSWER, request_id, self.no(409, "SegmentBusy")),)
            body = os.pread(self.drafts.pop(fields["handle"]), os.fstat(descriptor).st_size, 0)
            os.close(descriptor)
        stored = {"etag": f'"{hashlib.md5(body).hexdigest()}"', "last-modified": "Sat, 21 Nov 2026 20:19:00 GMT"}
        kept = {
            name: value for name, value in fields["headers"].items() if name.startswith(("content-t", "x-amz-meta-"))
        }
        self.objects[fields["bucket"], fields["key"]] = (body, {**stored, "accept-ranges": "bytes", **kept})
        return (packet(wire.ANSWER, request_id, {"status": 200, "headers": {**stored, "x-amz-request-id": "R"}}),)

    def read(self, operation, request_id, fields):
        data, headers = self.objects.get((fields["bucket"], fields["key"]), (None, None))
        if data is None:
            return (packet(wire.ANSWER, request_id, self.no(404)),)
        status, begin, length = 200, 0, len(data)
        if "range" in fields:
            first, last = fields["range"].removeprefix("bytes=").split("-")
            begin, status = int(first), 206
            length = min(int(last) + 1, len(data)) - begin
        headers = {**headers, "content-length": str(length), "x-amz-request-id": "R"}
        answer = {"status": status, "headers": headers, "length": length}
        if operation == wire.HEAD:
            return (packet(wire.ANSWER, request_id, answer),)
        if len(data) < 64 << 10:
            return (packet(wire.ANSWER, request_id, answer, data[begin : begin + length], wire.IN_PACKET),)
        self.handles += 1
        return packet(wire.ANSWER, request_id, {**answer, "handle": self.handles, "offset": begin}), sealed(data)


if __name__ == "__main__":
    served = Responder()
    print(served.address, flush=True)
    threading.Event().wait()
