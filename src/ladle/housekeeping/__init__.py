"""What goes on while nobody asks: retention, compaction, clean-up, checkpoints, and the threads that do it and the
backfill.
"""
