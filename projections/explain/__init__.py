"""Why an order, a bot, a job or a ticket is where it is."""
