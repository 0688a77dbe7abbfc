# SPDX-License-Identifier: Apache-2.0
"""URDF model of the axes of a rig, and an RViz configuration that shows the model."""

from __future__ import annotations

from string import Template
from xml.etree import ElementTree

from rths_nodes.core.resources import resource
from rths_nodes.loop.scenario.schema import Scenario

GROUND = "ground"
THICK, WIDE, APART = 0.5, 6.0, 5.0
"""Height, width and vertical distance of the slabs, as multiples of the stroke of the axis."""


def below(above: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(above, tag, attributes)


def xml_text(root: ElementTree.Element) -> str:
    ElementTree.indent(root, " ")
    return "<?xml version='1.0' encoding='UTF-8'?>\n" + ElementTree.tostring(root, encoding="unicode") + "\n"


def urdf(scenario: Scenario) -> str:
    """Return the URDF text of a model in which each axis is a slab on a prismatic joint along x."""
    robot = ElementTree.Element("robot", name=scenario.name)
    _slab(robot, GROUND, max(axis.limits.stroke for axis in scenario.axes.values()), "0.3 0.3 0.3 1")
    height = 0.0
    for name, axis in scenario.axes.items():
        limits = axis.limits
        height += APART * limits.stroke
        _slab(robot, f"{name}_slab", limits.stroke, "0.84 0.15 0.16 1")
        joint = below(robot, "joint", name=name, type="prismatic")
        below(joint, "parent", link=GROUND)
        below(joint, "child", link=f"{name}_slab")
        below(joint, "origin", xyz=f"0 0 {height:g}", rpy="0 0 0")
        below(joint, "axis", xyz="1 0 0")
        bounds = {"lower": -limits.stroke, "upper": limits.stroke}
        bounds |= {"effort": limits.force, "velocity": limits.velocity}
        below(joint, "limit", **{key: f"{value:g}" for key, value in bounds.items()})
    return xml_text(robot)


def _slab(robot: ElementTree.Element, name: str, stroke: float, color: str) -> None:
    visual = below(below(robot, "link", name=name), "visual")
    size = f"{WIDE * stroke:g} {WIDE * stroke:g} {THICK * stroke:g}"
    below(below(visual, "geometry"), "box", size=size)
    below(below(visual, "material", name=f"of_{name}"), "color", rgba=color)


def rviz(rig: str) -> str:
    """Return the text of an RViz configuration that shows the model of the rig in the namespace ``rig``."""
    template = resource("config", "templates", "layouts", "rig.rviz.tmpl").read_text(encoding="utf-8")
    return Template(template).substitute(prefix=rig.strip("/"), ground=GROUND)
