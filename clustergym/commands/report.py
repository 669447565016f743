"""`clustergym report DIR… [--out FILE]`: write a page over runs, or one that plays them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from clustergym.common.errors import InputError, Parser, exits_on_bad_input
from clustergym.results.report.write import (
    PAGE,
    PLAYER,
    PLAYER_TEMPLATE,
    TEMPLATE,
    page,
    write_report,
)
from clustergym.results.result_files import FILE_NAME, read_results


def _run_folder(places: Sequence[Path]) -> Path | None:
    """Return the folder of the run if a single run is given; None for several runs."""
    place = places[0].parent if places[0].name == FILE_NAME else places[0]
    return place if len(places) == 1 and (place / FILE_NAME).is_file() else None


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym report`: write a web page of results, and print its path."""
    parser = Parser(
        prog="clustergym report",
        description="Draw the results in and below folders in one page. Of one run's folder it is the page "
        "that the run writes itself: make it so where report=false left it out, or where it failed.",
    )
    parser.add_argument(
        "places", metavar="DIR", nargs="+", type=Path, help="folder of one or more runs, or a result.json"
    )
    words = "the page (report.html, with --player player.html; in DIR if DIR is the folder of a run)"
    parser.add_argument("--out", metavar="FILE", type=Path, help=words)
    words = (
        "a page that plays runs instead, two beside each other: who holds which GPU, who waits, throughput"
    )
    parser.add_argument("--player", action="store_true", help=words)
    words = "write no file, and show the player on http://127.0.0.1:PORT/ until Ctrl+C"
    parser.add_argument("--serve", action="store_true", help=words)
    parser.add_argument(
        "--port", metavar="PORT", type=int, default=8000, help="0: any that is free (default: 8000)"
    )
    options = parser.parse_args(argv)
    if options.serve:
        if options.out is not None:
            raise InputError("--serve writes no file", field="--out", remedy="give --player to write one")
        serve(make_server(page(read_results(options.places), PLAYER_TEMPLATE), options.port))
        return 0
    folder = _run_folder(options.places)
    name, template = (PLAYER, PLAYER_TEMPLATE) if options.player else (PAGE, TEMPLATE)
    path = options.out or (folder or Path()) / name
    results = write_report(options.places if folder is None else [folder], path, template)
    print(f"wrote {path}: {results} result{'s' * (results != 1)}")
    return 0


HOST = "127.0.0.1"


def make_server(page: str, port: int) -> ThreadingHTTPServer:
    """Make a web server of one page, which listens on 127.0.0.1 only.

    Parameters
    ----------
    page : str
        The page, given at `/`.
    port : int
        0: any that is free.
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
    """Print a web server's address, and serve until the process is interrupted."""
    print(f"http://{HOST}:{server.server_port}/ (Ctrl+C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


if __name__ == "__main__":
    sys.exit(main())
