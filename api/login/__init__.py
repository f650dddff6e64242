"""Authentication, login and CSRF protection."""
