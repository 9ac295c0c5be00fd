"""The demonstration: live streams, standing queries of each window kind, and a view of both."""
