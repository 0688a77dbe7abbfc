"""Puts the parts together: command line, hosts, studies, doctor."""
