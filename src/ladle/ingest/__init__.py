"""The way of the data: epochs, sources and their supervision, clocks, backfills."""
