"""Warehouses as versions before wrote them. They must open, with everything that is in them."""
