"""Cron schedules that create jobs."""
