"""What every other room speaks: samples, protocols, parameters, the registry, bytes on the wire, mathematics."""
