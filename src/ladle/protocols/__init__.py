"""How other processes reach a database: HTTP, and the socket in its warehouse."""
