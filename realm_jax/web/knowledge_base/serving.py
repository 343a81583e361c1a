"""Serves a knowledge base at a port of this machine."""

import os

from absl import logging

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.language_model import Generate
from realm_jax.web.listening import LimitSettings, listening


def serve(
  base: KnowledgeBase | str | os.PathLike,
  *,
  host: str = "127.0.0.1",
  port: int = 8080,
  edit_token: str | None = None,
  limits: LimitSettings = LimitSettings(),
  generate: Generate | None = None,
) -> None:
  """Serves a knowledge base until told to stop, by SIGTERM or an interrupt.

  Args:
    base: The knowledge base, or its folder.
    host: Address to listen on; only programs of this machine reach the default.
    port: Port to listen on; 0 chooses a free one, which the printed address shows.
    edit_token: Lets those who know it change documents; None takes the environment's
      REALM_EDIT_TOKEN, and without that nobody may.
    limits: Which requests are accepted.
    generate: What answers instead of the reader; see `KnowledgeBase.answer`.

  Raises:
    FileNotFoundError: If there is no knowledge base.
    ValueError: If the port is taken, the token is short, or the extra `serve` is not installed.
  """
  opened = base if isinstance(base, KnowledgeBase) else KnowledgeBase(base)
  with listening(host, port) as listener:
    from realm_jax.web.knowledge_base import pages

    app = pages.make_app(
      opened,
      edit_token=edit_token or os.environ.get("REALM_EDIT_TOKEN"),
      limits=limits.with_local_names(host),
      generate=generate,
    )
    warm(opened)
    listener.serve(app)


def warm(base: KnowledgeBase) -> None:
  """Loads what searches need, so that the first clients do not wait and what says ready is true."""
  try:
    base.warm()
  except ValueError as error:  # such as an encoder that has to be named; words can be searched
    logging.warning("%s", error)
