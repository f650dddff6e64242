"""Notifications as signed webhooks."""
