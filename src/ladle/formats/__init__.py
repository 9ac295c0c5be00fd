"""Rows as files and messages have them: CSV, JSON lines, Parquet, Arrow."""
