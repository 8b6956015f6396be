"""Rules of the kernel that are broken on purpose: what looks for a loss must find each of them."""

from psephos.kernel import ledger, ledger_history, measurement, vault
from psephos.kernel.lineage import Node, rise
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace
from psephos.kernel.unit import Unit


def halve_sensitivity(monkeypatch):
    true = measurement.sensitivity
    monkeypatch.setattr(measurement, "sensitivity", lambda q, p: true(q, p) / 2**p)


def halve_attached_noise(monkeypatch):
    laplace = lambda scale: DiscreteLaplace(scale / 2)  # noqa: E731
    gaussian = lambda variance: DiscreteGaussian(variance / 4)  # noqa: E731
    monkeypatch.setattr(measurement, "DiscreteLaplace", laplace)
    monkeypatch.setattr(measurement, "DiscreteGaussian", gaussian)


def halve_drawn_noise(monkeypatch):
    """The record does not show it."""

    def draw(self, added, size):
        if isinstance(added, DiscreteLaplace):
            return DiscreteLaplace(added.scale / 2).draw(size)
        return DiscreteGaussian(added.variance / 4).draw(size)

    monkeypatch.setattr(vault.Draws, "noise", draw)


def forget_stability(monkeypatch):
    monkeypatch.setattr(Node, "stability", property(lambda self: 1))


def forget_distance(monkeypatch):
    monkeypatch.setattr(Unit, "distance", property(lambda self: 1))


def change_rise(monkeypatch, changed):
    for module in (ledger, ledger_history):
        monkeypatch.setattr(module, "rise", changed)


def refund_charges(monkeypatch):
    def cheap(amount, branches, totals):
        by, changed = rise(amount, branches, totals)
        return by / 2, changed

    change_rise(monkeypatch, cheap)


def forget_parts(monkeypatch):
    """What was spent on a part before is not added to what is spent on it now."""

    def forget(amount, branches, totals):
        parts = {branch.part for branch in branches}
        return rise(amount, branches, {k: v for k, v in totals.items() if k not in parts})

    change_rise(monkeypatch, forget)


RULES = [
    halve_sensitivity,
    halve_attached_noise,
    forget_stability,
    forget_distance,
    refund_charges,
    forget_parts,
]
