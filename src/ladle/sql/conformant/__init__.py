"""The list of what DuckDB may run as Spark would, and the translation that uses it; `ladle.sql.conform` is the door."""
