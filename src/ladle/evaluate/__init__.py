"""Expressions and residual SQL over Arrow. The only package that imports duckdb."""

from ladle.evaluate.factors import FactorResult, Failure, evaluate_factors, evaluate_keys
from ladle.evaluate.residual import run_above, run_residual

__all__ = ["FactorResult", "Failure", "evaluate_factors", "evaluate_keys", "run_above", "run_residual"]
