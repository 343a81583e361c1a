"""Weights of other projects as our parameters, and back."""
