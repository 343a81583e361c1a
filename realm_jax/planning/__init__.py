"""Arithmetic of what a training costs before it is run; pure, and without JAX."""
