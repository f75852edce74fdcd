"""The dashboard of an operator as a table in a terminal.

``PageClient`` reads the page's JSON, ``table`` makes lines of it, and ``show`` prints them, on a terminal every two
seconds. Object authors choose names and messages, so control characters are replaced before anything is printed.
"""

import json
import os
import ssl
import sys
import time
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rolecall.runner.dashboard.html import ACCESS_PATH, is_loopback, list_path
from rolecall.runner.dashboard.views import SHAPES, Query, State, ago, until

UPDATE_SECONDS: Final = 2.0
_TIMEOUT_SECONDS: Final = 10.0
_MOST_BYTES: Final = 64 << 20
_GAP: Final = 2
_FLEXIBLE: Final = ("WHY", "WAITS FOR")
"""The columns cut to the width of the terminal, or left out so that the names of objects are whole."""

_LEAST_WIDTH: Final = 8
"""A column that would be narrower is left out."""

_STYLES: Final = dict(zip(State, ("cyan", "red", "magenta", "yellow", "yellow", "green"), strict=True))
_HELP: Final = (
    "start the operator with --ui-bind-address 127.0.0.1:8090 or, if it is in a cluster, forward its port: "
    "kubectl port-forward --namespace NAMESPACE deployment/NAME 8090"
)


class PageError(Exception):
    """The page can't be read; the message is one line with the reason and the fix."""


@dataclass(frozen=True, slots=True)
class PageClient:
    """Reads the dashboard at a URL. ``problem`` must be checked first."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    verifies: bool = True

    @property
    def problem(self) -> str:
        """The reason why the URL is invalid, empty if it is valid."""
        try:
            parts = urlsplit(self.url)
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            return f"argument --url: {error}: {self.url!r}"
        if parts.scheme not in ("http", "https") or not host:
            return f"argument --url: expected an address such as http://127.0.0.1:8090, found {self.url!r}"
        if self.token_file and parts.scheme == "http" and not is_loopback(host):
            return f"argument --token-file: a token is sent only by https or to this machine, found {self.url!r}"
        return ""

    def objects(self, query: Query) -> dict[str, Any]:
        """Return a page of the list, running objects first. Raise PageError."""
        page = self._read(query)
        rows = page["rows"]
        if page["pages"] > 1 and not query.state:  # a run in progress can be on any of the pages
            rows = self._read(replace(query, state=State.RUNNING))["rows"] | rows
        return page | {"rows": sorted(rows.values(), key=lambda row: bool(row["state"] != State.RUNNING))}

    def kind_id(self, wanted: str) -> str:
        """Return the ID of a kind named by its ID or, if only one matches, without version and group."""
        every = [str(each["id"]) for each in self._read(Query())["kinds"]]
        ids = [each for each in every if wanted in (each, each.partition(".")[0])]
        if len(ids) == 1:
            return ids[0]
        raise PageError(f"--kind {wanted}: expected one of {', '.join(ids or every) or 'no kinds at all'}")

    def _read(self, query: Query) -> dict[str, Any]:
        status, body = self._response(list_path(query))
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            account = f"an account with the verb get on the nonResourceURL {ACCESS_PATH} (status {status})"
            raise PageError(f"the dashboard at {self.url} needs --token-file with the token of {account}")
        try:
            page = _printable(json.loads(body))
        except (ValueError, RecursionError):
            page = None
        if status != HTTPStatus.OK or not isinstance(page, dict):
            found = f"status {status}, {_printable(body[:80].decode(errors='replace'))!r}"
            raise PageError(f"the server at {self.url} is not the dashboard of an operator: {found}; {_HELP}")
        try:
            page["rows"] = {(row["kind"], row["namespace"], row["name"]): row for row in page["rows"]}
            _ = [_cells(row, 0.0) for row in page["rows"].values()], list(map(_kind, page["kinds"])), _title(page, "")
            _ = page["found"] + page["pages"] > 1
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            problem = f"{type(error).__name__} {error}; use the rolecall of the operator's version"
            raise PageError(f"{self.url} is not a dashboard of this version of rolecall: {problem}") from None
        return page

    def _response(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body, cut off if it is too long for a page."""
        headers, parts = self._headers(), urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        connection = HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        if parts.scheme == "https":
            connection = HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=self._tls())
        try:
            connection.request("GET", parts.path.rstrip("/") + path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(_MOST_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            raise PageError(self._unanswered(error)) from error
        finally:
            connection.close()

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise PageError(f"--ca-file: {self.ca_file}: {error.strerror or error}; expected PEM") from None
        if not self.verifies:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _headers(self) -> dict[str, str]:
        """Return the headers of a request. The token is read each time, because tokens are renewed."""
        headers = {"Accept": "application/json"}
        if self.token_file:
            try:
                token = self.token_file.read_text().strip()
            except (OSError, ValueError) as error:
                raise PageError(f"--token-file: {self.token_file}: {error}") from None
            if not token or not token.isprintable() or not token.isascii():
                raise PageError(f"--token-file: {self.token_file}: expected a token of one line")
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _unanswered(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the certificate of {self.url} is not trusted: {error.verify_message}; give its CA with --ca-file"
        if isinstance(error, ssl.SSLError):
            return f"the server at {self.url} does not speak TLS; is it http:// instead of https://?"
        if isinstance(error, HTTPException | ConnectionResetError | BrokenPipeError | ValueError):
            return f"the server at {self.url} does not speak HTTP, or has closed the connection; is it https://?"
        return f"nothing answers at {self.url} ({getattr(error, 'strerror', '') or error}); {_HELP}"


def _printable(value: Any) -> Any:
    """Return JSON whose strings can't control a terminal: each is one line of printable characters."""
    if isinstance(value, dict):
        return {_printable(name): _printable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_printable(each) for each in value]
    if not isinstance(value, str):
        return value
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in value)


def show(client: PageClient, kind: str | None, query: Query, *, once: bool) -> None:
    """Print the table, on a terminal again and again until KeyboardInterrupt. Raise PageError if there is none."""
    query = replace(query, kind=client.kind_id(kind) if kind else "")
    page, is_terminal = client.objects(query), sys.stdout.isatty()
    width = None if is_terminal or os.environ.get("COLUMNS") else 1000  # a pipe has no width
    console = Console(width=width, force_terminal=is_terminal, highlight=False, markup=False, emoji=False)
    if is_terminal and not once:
        _watch(client, query, page, console)
    with console.capture() as capture:
        console.print(table(client.url, page, console))
    text = "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
    sys.stdout.buffer.write(text.encode(sys.stdout.encoding, "replace"))  # an old encoding lacks the shapes of states


def _watch(client: PageClient, query: Query, page: dict[str, Any], console: Console) -> None:
    """Redraw the page until KeyboardInterrupt. If the operator stops answering, keep its last response."""
    answered, error = time.time(), ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            trouble = f"Last response {ago(answered, time.time())}, retrying: {error}" if error else ""
            live.update(table(client.url, page, console, console.height, trouble), refresh=True)
            time.sleep(UPDATE_SECONDS)
            try:
                page, answered, error = client.objects(query), time.time(), ""
            except PageError as found:
                error = str(found)


def table(url: str, page: dict[str, Any], console: Console, height: int = sys.maxsize, trouble: str = "") -> Group:
    """Return the operator, its kinds, and as many objects as fit into a height."""
    head = [_title(page, url), *([Text(trouble, "bold red")] if trouble else []), *map(_kind, page["kinds"])]
    room = height - len(console.render_lines(Group(*head))) - 2  # the names of the columns, and the last line
    rows = page["rows"][: max(1, room)]
    if not rows:
        return Group(*head, "No object matches.")
    more = page["found"] - len(rows)
    last = [f"{more} more: choose with --kind, --namespace, --state and --search"] if more > 0 else []
    return Group(*head, _objects(rows, console.width), *last)


def _title(page: dict[str, Any], url: str) -> Text:
    replica = page["replica"]
    runs = f"{replica['runs']} of {replica['mostRuns']}" if replica["mostRuns"] else str(replica["runs"])
    title = f"rolecall {replica['version']}", "bold"
    return Text.assemble(title, f"  {url}  Runs in progress: {runs}\n{replica['text']}")


def _kind(kind: dict[str, Any]) -> Text:
    """Return a kind with the states of its objects, and its queue."""
    text = Text.assemble((kind["kind"], "bold"), f": {kind['objects']}")
    for state in State:
        if count := kind["states"][state]:
            text.append("  ").append(f"{SHAPES[state]} {state} {count}", _STYLES[state])
    text.append(f"  (workers busy: {kind['running']} of {kind['workers']}, queued: {kind['queued']})", "dim")
    if kind["trouble"]:
        age = "objects not listed yet" if kind["asOf"] is None else f"objects as of {ago(kind['asOf'], time.time())}"
        text.append(f"\n{kind['trouble']}; {age}", "bold red")
    return text


def _objects(rows: list[dict[str, Any]], width: int) -> Table:
    """Return the table of objects; WHY and WAITS FOR get the width that the other columns leave."""
    now = time.time()
    cells = [_cells(row, now) for row in rows]
    wide = {title: max(len(title), *(each[title].cell_len for each in cells)) for title in cells[0]}
    if len({row["kind"] for row in rows}) == 1:  # the lines above name it
        del wide["KIND"]
    fixed = [title for title in wide if title not in _FLEXIBLE]
    room = width - sum(wide[title] + _GAP for title in fixed)
    wide["OBJECT"] = max(_LEAST_WIDTH, wide["OBJECT"] + min(0, room + _GAP))
    made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    shown = [*fixed, *_FLEXIBLE[: max(0, room // (_LEAST_WIDTH + _GAP))]]
    for title in shown:
        made.add_column(title, width=None if title in _FLEXIBLE else wide[title], overflow="fold")
    for each in cells:
        made.add_row(*(each[title] for title in shown))
    return made


def _cells(row: dict[str, Any], now: float) -> dict[str, Text]:
    state, run, wait = State(row["state"]), row["lastRun"], row["waitsFor"]
    when = "" if wait["until"] is None else f"{until(wait['until'], now)}: "
    cause = f" ({'; '.join(wait['because'])})" if wait["because"] else ""
    why = run["message"] or "; ".join(run["because"]) if run else ""
    return {
        "STATE": Text(f"{SHAPES[state]} {state}", _STYLES[state]),
        "KIND": Text(row["kindName"], "dim"),
        "OBJECT": Text(f"{row['namespace']}/{row['name']}" if row["namespace"] else row["name"]),
        "LAST RUN": Text(ago(run["started"], now)) if run else Text("none", "dim"),
        "WHY": Text(why, no_wrap=True, overflow="ellipsis"),
        "WAITS FOR": Text(when + wait["text"] + cause, no_wrap=True, overflow="ellipsis"),
    }
