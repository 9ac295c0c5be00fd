"""Backups of a warehouse, made and verified while epochs go on."""
