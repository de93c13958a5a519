#!/usr/bin/env python3
"""A small proxy in front of servers that prefill and servers that decode (`--kv-role`): has the prompt of each completion
and chat computed by one of the former, then passes the request on to one of the latter with the `kv_transfer_params` of
that answer, as llm-d's routing sidecar and vLLM's toy_proxy_server.py do. Everything else goes to a server that decodes.

When a server that prefills fails, refuses or is gone, the request goes on without it, and is computed where it is
decoded. For trying out, and for tests: it has no TLS, no health checks and a thread for each connection, and notices that
a client has hung up only when it writes to it.

    scripts/prefill_proxy.py --port 8192 --prefill 127.0.0.1:8100 --decode 127.0.0.1:8200 127.0.0.1:8201
"""

import argparse
import contextlib
import http.client
import http.server
import itertools
import json
import sys

PATHS = ("/v1/completions", "/v1/chat/completions")
ASKS_TO_PREFILL = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
                   "remote_block_ids": None, "remote_host": None, "remote_port": None}
NOT_PASSED_ON = {"host", "connection", "content-length", "transfer-encoding", "keep-alive", "te", "trailer", "upgrade",
                 "expect", "accept-encoding"}
MAX_BODY_BYTES = 64 << 20


def passed_on(headers):
    return {name: value for name, value in headers.items() if name.lower() not in NOT_PASSED_ON}


def prefill_body(body):
    """The request as a server that prefills gets it: one token, not streamed."""
    asked = {**body, "stream": False, "max_tokens": 1, "kv_transfer_params": ASKS_TO_PREFILL}
    if "max_completion_tokens" in body:
        asked["max_completion_tokens"] = 1
    asked.pop("stream_options", None)
    return asked


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 600

    def log_message(self, *_):
        pass

    def read_body(self):
        """None: it was refused."""
        length = self.headers.get("Content-Length", "0")
        is_length = length.isdecimal() and len(length) <= 18
        if not is_length or int(length) > MAX_BODY_BYTES or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            self.send_error(413, f"Content-Length must be given, at most {MAX_BODY_BYTES}")
            return None
        return self.rfile.read(int(length))

    def ask(self, server, method, body):
        """The connection and its response, whose headers have come."""
        connection = http.client.HTTPConnection(*server, timeout=600)
        try:
            connection.connect()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may refuse a body that it has in part
                connection.request(method, self.path, body, passed_on(self.headers))
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def prefill(self, body):
        """What the other server is to know of the blocks; None: nothing."""
        server = next(self.server.prefill)
        try:
            connection, response = self.ask(server, "POST", json.dumps(prefill_body(body)))
            with contextlib.closing(connection):
                answer = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            print(f"{server[0]}:{server[1]} does not prefill: {error or type(error).__name__}", file=sys.stderr)
            return None
        return answer.get("kv_transfer_params") if isinstance(answer, dict) else None

    def with_prefill(self, text):
        try:
            body = json.loads(text)
        except ValueError:
            return text  # the server says what is wrong with it
        if not isinstance(body, dict):
            return text
        body.pop("kv_transfer_params", None)  # they are between the servers
        params = self.prefill(body)
        return json.dumps({**body, "kv_transfer_params": params} if params else body)

    def pass_back(self, response):
        """Each piece as it comes, so that a stream stays one."""
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in NOT_PASSED_ON | {"date", "server"}:
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := response.read1(65536):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if response.length:  # read1 does not tell it from a whole answer
            raise http.client.IncompleteRead(b"", response.length)
        self.wfile.write(b"0\r\n\r\n")

    def handle_any(self):
        text = self.read_body()
        if text is None:
            return
        if self.command == "POST" and self.path in PATHS:
            with contextlib.suppress(RecursionError):  # the server says that it is nested too deeply
                text = self.with_prefill(text)
        try:
            connection, response = self.ask(next(self.server.decode), self.command, text)
        except (OSError, http.client.HTTPException) as error:
            self.send_error(502, f"The server that decodes is gone: {error or type(error).__name__}")
            return
        with contextlib.closing(connection):
            try:
                self.pass_back(response)
            except (OSError, http.client.HTTPException):  # the client is gone, or the answer is cut off: so is this one
                self.close_connection = True

    do_GET = do_POST = do_DELETE = handle_any


class Proxy(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, address, prefill, decode):
        super().__init__(address, Handler)
        self.prefill, self.decode = (itertools.cycle(servers) for servers in (prefill, decode))


def address_of(text):
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text}: must be HOST:PORT")
    return host.strip("[]"), int(port)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8192)
    parser.add_argument("--prefill", type=address_of, nargs="+", required=True, metavar="HOST:PORT")
    parser.add_argument("--decode", type=address_of, nargs="+", required=True, metavar="HOST:PORT")
    options = parser.parse_args()
    try:
        proxy = Proxy((options.host, options.port), options.prefill, options.decode)
    except (OSError, OverflowError) as error:
        parser.error(f"cannot listen on {options.host}:{options.port}: {error}")
    with proxy:
        print(f"listens on http://{options.host}:{proxy.server_port}", file=sys.stderr)
        try:
            proxy.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
