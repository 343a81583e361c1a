"""Publishes a knowledge base in an object store, for readers on other machines."""

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def publish(path: str, address: str) -> None:
  """Copies what is not there yet, then the newest commit, which readers of the address follow.

  Args:
    path: The folder of the knowledge base.
    address: Where readers open it, such as gs://bucket/kb.

  Raises:
    FileNotFoundError: If there is no knowledge base.
    ValueError: If the address has something else, or a newer commit.
  """
  base = KnowledgeBase(path)
  print(f"{base.publish(address)} files copied\n{base}", flush=True)
