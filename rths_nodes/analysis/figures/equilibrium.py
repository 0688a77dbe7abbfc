"""Figure of the equilibrium residual."""

from __future__ import annotations

from rths_nodes.analysis import equilibrium
from rths_nodes.analysis.figures.plan import TIME, ZERO_LINE, Base, Plan, Quantity
from rths_nodes.analysis.figures.sheet import View
from rths_nodes.analysis.figures.style import styled
from rths_nodes.analysis.figures.thinning import largest
from rths_nodes.analysis.units import PERCENT, quantity

ROUNDING = 1e-6
"""Percent of the largest force up to which a residual is rounding."""


def residual(view: View) -> Plan | None:
    """Over time, in percent of the largest force; None for prescribed displacements, which have no equation.

    Raises ConfigError where it cannot be computed.
    """
    if view.of.scenario.structure is None:
        return None
    found = equilibrium.residual(view.of)
    if len(found.time) < 2 or not found.scale:
        return None
    dofs = styled(view.run.dof_names)
    share = PERCENT * found.force / found.scale
    of = Quantity("residual", "%")
    panels = view.panels([Base("steps", TIME, found.time)], of, [share.T], dofs, 0.8, levels=[ZERO_LINE])
    most = largest(share)
    rounding = most < ROUNDING
    words = "nothing but rounding is left" if rounding else f"up to {quantity(most, 1.0, '%')} is left"
    caption = (
        "Inertia, damping, computed and measured restoring force minus the external force, at the steps of the "
        "integrator, as a share of the largest of these forces. An integrator that satisfies the equation at its "
        "steps leaves rounding; one that does so within them, or forces that are read ahead, leave more."
    )
    return view.plan("equilibrium", (f"Equilibrium: {words}", caption), panels, [1.3], view.legend_of(dofs))
