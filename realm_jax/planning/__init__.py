"""Estimates the cost of a training before it runs."""
