"""A recording upstream: keeps what it received byte for byte, then passes it to the engine behind it."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Recorder:
    """Listens on a free loopback port and forwards to `engine_port`; `received` lists (headers, body)."""

    def __init__(self, engine_port):
        self.received = []
        self.lock = threading.Lock()
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def forward(self):
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                if self.command == "POST":
                    with recorder.lock:
                        recorder.received.append((dict(self.headers), body))
                upstream = http.client.HTTPConnection("127.0.0.1", engine_port, timeout=300)
                upstream.request(self.command, self.path, body, dict(self.headers))
                answer = upstream.getresponse()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection", "date", "server"):
                        self.send_header(name, value)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                try:
                    while piece := answer.read1(65536):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    self.close_connection = True
                finally:
                    upstream.close()

            do_GET = do_POST = forward

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def body_of(self, attempt_ids):
        """Returns the recorded bodies whose x-request-id is among `attempt_ids`."""
        with self.lock:
            return [body for headers, body in self.received
                    if {k.lower(): v for k, v in headers.items()}.get("x-request-id") in attempt_ids]
