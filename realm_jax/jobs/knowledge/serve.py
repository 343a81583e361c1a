"""Serves a knowledge base: a page and an HTTP API."""

from realm_jax.knowledge_base.chat_server import GeneratorSettings
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.web import listening
from realm_jax.web.listening import LimitSettings


def serve(
  path: str,
  *,
  host: str = "127.0.0.1",
  port: int = 8080,
  edit_token: str | None = None,
  limits: LimitSettings = LimitSettings(),
  generator: GeneratorSettings = GeneratorSettings(),
) -> None:
  """Opens a knowledge base and serves it until told to stop.

  Args:
    path: The folder of the knowledge base.
    host: Address to listen on; 0.0.0.0 is every address of this machine.
    port: Port to listen on; 0 chooses a free one, which the printed address shows.
    edit_token: Lets those who know it change the documents; None takes the environment's
      REALM_EDIT_TOKEN, and without that nobody may. Other users of the machine can read a command
      line.
    limits: Which requests are accepted; on a loopback address, `hosts` are local names by default.
    generator: A language model, which answers instead of the reader.

  Raises:
    FileNotFoundError: If there is no knowledge base.
    ValueError: If the port is taken, or FastAPI or uvicorn is not installed.
  """
  listening.serve(
    KnowledgeBase(path),
    host=host,
    port=port,
    edit_token=edit_token,
    limits=limits,
    generate=generator.open(),
  )
