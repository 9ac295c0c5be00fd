"""Where work is distributed. Only this package imports pyspark, and only when a session is first needed."""

from ladle.pipeline.interface import Attached, Batches, BatchRunner, Failures, FileRelation, Pipeline, Relation

__all__ = ["Attached", "BatchRunner", "Batches", "Failures", "FileRelation", "Pipeline", "Relation"]
