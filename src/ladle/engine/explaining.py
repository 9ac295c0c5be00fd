"""How a query is answered, told to the program that has the warehouse or to a user of it."""

from __future__ import annotations

from ladle import sql
from ladle.access import User
from ladle.catalog import Catalog, Seen
from ladle.define.definitions import still_holds
from ladle.engine.parts import Parts
from ladle.execute.explain import explain_plan, explain_query, tree_of_text
from ladle.execute.explain_analyze import analysis
from ladle.handles import PlanTree
from ladle.plan import Plan


def of_text(parts: Parts, text: str, *, analyze: bool, to: User | None = None) -> str:
    """Of a standing query by its name, or of the text of a SELECT. Queries that share its work are counted as far as
    they are seen by the user it is told `to`.
    """
    with parts.store.pin() as whole:
        catalog = whole if to is None else Seen.by(to, whole)
        state = catalog.query(text)
        if state is None:
            plan = sql.bind(text, catalog, parts.settings)
            return of_plan(parts, plan, catalog, analyze=analyze, to=to)
        wall_us, problem = parts.store.clock.now_us(), parts.report.problem(state)
        kept = None if state.broken is not None else parts.background.kept(state)
        said = explain_query(parts.store, catalog, state, wall_us, problem, parts.invoker, parts.demands, kept)
        analyze = analyze and state.broken is None
        return f"{said}\n{analysis(state.plan, catalog, parts.invoker, parts.ingest.tickets)}" if analyze else said


def of_plan(parts: Parts, plan: Plan, bound_to: Catalog, *, analyze: bool, to: User | None = None) -> str:
    """Of a SELECT that is bound already."""
    with parts.store.pin() as whole:
        catalog = whole if to is None else Seen.by(to, whole)
        current = plan if still_holds(plan, bound_to, catalog) else sql.rebind(plan.sql, bound_to.renewed(catalog))
        said = explain_plan(parts.store, catalog, current, parts.store.clock.now_us(), parts.invoker)
        return f"{said}\n{analysis(current, catalog, parts.invoker, parts.ingest.tickets)}" if analyze else said


def tree(parts: Parts, text: str, *, analyze: bool, to: User | None = None) -> PlanTree | None:
    """The plan's tree, if the query is not broken; with `analyze` each node is run and measured."""
    with parts.store.pin() as whole:
        catalog = whole if to is None else Seen.by(to, whole)
        kept_of = parts.background.kept
        return tree_of_text(parts.store, catalog, text, parts.invoker, parts.demands, kept_of, analyze=analyze)
