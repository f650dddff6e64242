"""HTTP requests to other services, guarded against SSRF."""
