"""Ports: the way to the rig. The simulator is the first of them."""

from __future__ import annotations

TABLE = {"simulator": ".simulator:Simulator", "udp": ".udp:UdpPort"}
