"""Whether the loop of a test is stable, judged before the test."""
