"""Serve one page on this machine, to nobody else."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from clustergym.common.errors import InputError

HOST = "127.0.0.1"


def server_of(page: str, port: int) -> ThreadingHTTPServer:
    """Return a server of one page, which listens on 127.0.0.1 only.

    Parameters
    ----------
    page : str
        The page, given at `/`.
    port : int
        0: any that is free.

    Raises
    ------
    InputError
        If the port cannot be had.
    """
    content = page.encode("utf-8", errors="backslashreplace")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing about each request."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        remedy = "give another, or 0 for any that is free"
        raise InputError(f"{port} cannot be had: {error}", field="--port", remedy=remedy) from error


def serve(server: ThreadingHTTPServer) -> None:
    """Print the address and serve until the process is interrupted."""
    print(f"http://{HOST}:{server.server_port}/ (Ctrl+C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
