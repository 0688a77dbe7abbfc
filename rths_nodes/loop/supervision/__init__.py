"""What keeps the rig safe and the test judged: limits, states, safe stop, bridges, heartbeat, indices."""
