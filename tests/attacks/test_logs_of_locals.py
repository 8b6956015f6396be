"""What error trackers write down, over the whole suite.

The story is told in `psephos.audit.logs_of_locals`: locals of frames that an
error passed are printed by whoever reports crashes, and some of them hold counts. All errors that
the suite expects are looked through (tests/locals_of_errors.py); here it is seen that the look
would find something.
"""

import numpy as np
import pytest

import psephos as ps
from psephos.kernel import vault
from psephos.kernel.simulate import counted, simulation
from tests import locals_of_errors

DOMAIN = ps.Domain.of(x=5)
COUNTS = np.array([811, 17, 4099, 5, 93])


def broken_table():
    unit = ps.add_remove_row()
    table = simulation(counted(COUNTS, DOMAIN), DOMAIN, unit=unit, budget=ps.epsilon(9), seed=0)

    class Broken(vault.Draws):
        def noise(self, noise, size):
            raise MemoryError("811, 17, 4099, 5")

    table._vault.draws = Broken()
    return table.vectorise()


def test_the_look_sees_what_a_vault_has_counted():
    with pytest.raises(MemoryError) as caught:
        broken_table().measure(ps.matrix.Identity(5), spend=ps.epsilon("1"))
    assert (811, 17, 4099, 5) in locals_of_errors.COUNTED
    assert str(caught.value) == ""
    assert locals_of_errors.FORMATTED[0] > 0


def test_a_frame_with_counts_would_be_seen(monkeypatch):
    """Were errors passed on as they are, the suite would fail."""
    monkeypatch.setattr(vault, "_bare", lambda error: error)
    with locals_of_errors.plain_raises(AssertionError, match="shows true counts"):
        measure_and_look()


def measure_and_look():
    with pytest.raises(MemoryError):
        broken_table().measure(ps.matrix.Identity(5), spend=ps.epsilon("1"))
