"""What is computed and drawn before and after a test."""
