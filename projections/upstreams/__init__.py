"""Tables of upstreams and their records."""
