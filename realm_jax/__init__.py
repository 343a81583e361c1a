"""REALM: retrieval-augmented language-model pre-training in JAX."""

__version__ = "0.1.0"
