import os

from hypothesis import HealthCheck, settings

from tests import locals_of_errors

locals_of_errors.install()

slow_machine = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=slow_machine)
settings.register_profile(
    "ci", max_examples=120, deadline=None, derandomize=True, suppress_health_check=slow_machine
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
