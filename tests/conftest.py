import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import locals_of_errors

locals_of_errors.install()

slow_machine = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=slow_machine)
for name, examples in (("true", 12), ("thorough", 120)):  # make test, make test-all
    settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=slow_machine,
    )
profile = os.environ.get("CI") or "dev"
settings.load_profile(profile if profile in ("dev", "thorough") else "true")


@pytest.fixture
def place():
    """Where attacks on synthetic tables have their ledgers: in memory, if that is a folder."""
    from psephos.audit.stage import temporary_stage

    memory = Path("/dev/shm")
    with temporary_stage(memory if os.access(memory, os.W_OK | os.X_OK) else None) as stage:
        yield stage
