"""Every attack on the kernel's boundary fails, one at a time; each tells its own story."""

import pytest

from psephos.audit.behaviour import BOUNDARY_ATTACKS
from psephos.audit.stage import temporary_stage


@pytest.mark.parametrize("attack", BOUNDARY_ATTACKS, ids=lambda attack: attack.name)
def test_the_attack_fails(attack):
    with temporary_stage() as stage:
        attack.attempt(stage)
