"""Tables, claim statements and lists of jobs and queues."""
