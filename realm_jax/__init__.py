"""REALM: retrieval-augmented language-model pre-training in JAX."""

from realm_jax import backend

__version__ = "0.1.0"

backend.prepare()
