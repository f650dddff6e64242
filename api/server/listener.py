"""The listening socket. It is opened first, so that an occupied port fails at once."""

import errno
import socket

from daybook.eventlog.errors import SetupError

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Binds the address. Clients that connect before the service is up wait in the backlog."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise SetupError(
            f"The host {host} cannot be resolved: correct it with --host or DAYBOOK_HOST."
        ) from error
    family, _, _, _, address = found[0]
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise SetupError(explain_bind_error(error, host, port)) from error


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def explain_bind_error(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"Port {port} on {host} is already in use: "
                "stop the program that uses it, or choose another with --port."
            )
        case errno.EACCES:
            return (
                f"Port {port} needs root privileges: "
                "choose one from 1024 on with --port, or start Daybook as root."
            )
        case errno.EADDRNOTAVAIL:
            return (
                f"{host} is not an address of this machine: "
                "choose another with --host or DAYBOOK_HOST."
            )
        case _:
            return (
                f"Daybook cannot listen on port {port} of {host} ({error.strerror}): "
                "choose another with --host and --port."
            )
