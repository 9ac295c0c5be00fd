"""What operators keep of segments, and how that is put together: partial aggregates, groups, time windows."""
