"""Converts weights of other projects to our parameters and back."""
