"""The seed of random tests: the same in every run, so that CI does not depend on chance, or a new one where asked."""

from __future__ import annotations

import os
import random


def chosen_seed(default: int) -> int:
    """`PGTRICKLE_RANDOM_SEED`, where `random` stands for a new one."""
    text = os.environ.get("PGTRICKLE_RANDOM_SEED", str(default))
    return random.SystemRandom().randrange(2**31) if text == "random" else int(text)
