"""Endpoints of restaurants, tickets and guests."""
