"""Serves a knowledge base to assistants as tools, by the Model Context Protocol."""

import dataclasses
import os

from realm_jax.knowledge_base.chat_server import GeneratorSettings
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.web import listening


def mcp(
  path: str,
  *,
  write: bool = False,
  port: int | None = None,
  generator: GeneratorSettings = GeneratorSettings(),
) -> None:
  """Serves the tools `search`, `read` and `answer` until its client ends, over stdin and stdout.

  Args:
    path: The folder of the knowledge base.
    write: Whether there are also `add`, `delete`, `feedback` and `forget`.
    port: Port of this machine to serve at over HTTP instead; 0 chooses a free one, which the
      printed address shows. If the environment has a REALM_EDIT_TOKEN, only programs that send it
      are served, and `write` needs one.
    generator: A language model, which answers instead of the reader.

  Raises:
    FileNotFoundError: If there is no knowledge base.
    ValueError: If the port is taken, there is no token, or the extra `mcp` is not installed.
  """
  base, generate = KnowledgeBase(path), generator.open()
  try:
    from realm_jax.web import mcp_server
  except ImportError as error:
    raise ValueError(
      f"{error}; tools need the extra: pip install -e '.[mcp]' in the checkout"
    ) from error
  server = mcp_server.make_server(base, write=write, generate=generate)
  if port is None:
    return server.run("stdio")
  token = os.environ.get("REALM_EDIT_TOKEN")
  if write and not token:
    raise ValueError("--write at a port needs a token in the environment's REALM_EDIT_TOKEN")
  with listening.listening("127.0.0.1", port) as listener:
    app = mcp_server.http_app(server, token=token)
    listener = dataclasses.replace(listener, address=f"{listener.address}/mcp")
    listener.serve(app, note="give %s to an assistant")
