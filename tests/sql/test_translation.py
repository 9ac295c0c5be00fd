"""A change of what texts are bound to raises `TRANSLATION`, so that nothing derived with the old plans is read.

If this fails: raise `TRANSLATION` in `ladle/plan/translation.py`, and pin what the failure says.
"""

from __future__ import annotations

import hashlib
import json

from tests.sql.names import Catalog
from tests.sql.test_plans import _BLOCKS

from ladle.plan.query import plan_to_json
from ladle.plan.translation import translation
from ladle.sql import bind

PINNED = ("6-30.30.0", "d791f96c128a3a0780695c8a")


def test_another_translation_has_another_number() -> None:
    plans = []
    for block in _BLOCKS:
        plan = plan_to_json(bind(block.splitlines()[0], Catalog()))
        del plan["schema"]  # Arrow's own encoding of it
        plans.append(json.dumps(plan, sort_keys=True))
    digest = hashlib.blake2b("\n".join(plans).encode(), digest_size=12).hexdigest()
    assert (translation(), digest) == PINNED
