"""Every attack on the kernel's boundary fails, one at a time; their stories are in their files."""

import pytest

from psephos.audit import boundary
from psephos.audit.stage import stage


@pytest.mark.parametrize("attack", boundary.ATTACKS, ids=lambda attack: attack.name)
def test_the_attack_fails(attack):
    with stage() as place:
        attack.attempt(place)
