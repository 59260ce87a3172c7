"""What holds for all tests: none depends on the speed of the machine, none meets other examples than the last time.

Set `HYPOTHESIS_PROFILE=explore` to look for new examples.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("any machine", **_CALM, derandomize=True)
settings.register_profile("explore", **_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "any machine"))
