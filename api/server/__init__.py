"""The HTTP server: sockets, protocol, processes and signals."""
