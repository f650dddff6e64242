"""Endpoints of upstreams."""
