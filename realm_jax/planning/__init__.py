"""Estimates the costs of training before it runs."""
