"""Where the bundled example lies: in the checkout, or below the environment's `share` folder when installed."""

from __future__ import annotations

import sys
from pathlib import Path

from pgtrickle_assets.errors import ConfigurationError

_RELATIVE = Path("examples") / "flights"


def example_folder() -> Path:
    """The project folder of the flights example.

    Raises:
        ConfigurationError: This installation came without the example.
    """
    candidates = (
        Path(__file__).resolve().parents[1] / _RELATIVE,
        Path(sys.prefix) / "share" / "pgtrickle" / _RELATIVE,
    )
    for candidate in candidates:
        if (candidate / "pgtrickle.yaml").is_file():
            return candidate
    raise ConfigurationError(
        "This installation holds no bundled example.", hint="Set PGTRICKLE_PROJECT to a project folder of yours."
    )
