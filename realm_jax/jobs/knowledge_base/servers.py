"""The verbs of `realm kb` that serve a knowledge base, to browsers, programs and assistants."""

import dataclasses
import os

from realm_jax.foundations import choices, extras
from realm_jax.knowledge_base.knowledge_base import Opening
from realm_jax.knowledge_base.language_model import GeneratorSettings
from realm_jax.web import listening
from realm_jax.web.knowledge_base import serving
from realm_jax.web.listening import LimitSettings


def serve(
  opening: Opening,
  *,
  host: str = "127.0.0.1",
  port: choices.Port = 8080,
  edit_token: str | None = None,
  limits: LimitSettings = LimitSettings(),
  generator: GeneratorSettings = GeneratorSettings(),
) -> None:
  """Serves a knowledge base: pages and an HTTP API.

  Example:
    realm kb serve kb

  Args:
    opening: The knowledge base.
    host: Address to listen on; 0.0.0.0 is every address of this machine.
    port: Port to listen on; 0 chooses a free one, which the printed address shows.
    edit_token: Lets those who know it change the documents; None takes the environment's
      REALM_EDIT_TOKEN, and without that nobody may. Other users of the machine can read a command
      line.
    limits: Which requests are accepted; on a loopback address, `hosts` are local names by default.
    generator: A language model, which answers instead of the reader.
  """
  serving.serve(
    opening.open(),
    host=host,
    port=port,
    edit_token=edit_token,
    limits=limits,
    generate=generator.open(),
  )


def mcp(
  opening: Opening,
  *,
  write: bool = False,
  port: choices.Port | None = None,
  generator: GeneratorSettings = GeneratorSettings(),
) -> None:
  """Serves a knowledge base to assistants as tools, by the Model Context Protocol.

  Args:
    opening: The knowledge base.
    write: Whether there are `add`, `delete`, `feedback` and `forget` besides `search`, `read` and
      `answer`.
    port: Port of this machine to serve at over HTTP instead; 0 chooses a free one, which the
      printed address shows. If the environment has a REALM_EDIT_TOKEN, only programs that send it
      are served, and `write` needs one.
    generator: A language model, which answers instead of the reader.
  """
  base, generate = opening.open(), generator.open()
  try:
    from realm_jax.web.knowledge_base import mcp_server
  except ImportError as error:
    raise ValueError(f"{error}; tools need the extra: {extras.how_to_install('mcp')}") from error
  server = mcp_server.make_server(base, write=write, generate=generate)
  if port is None:
    serving.warm(base)
    return server.run("stdio")
  token = os.environ.get("REALM_EDIT_TOKEN")
  if write and not token:
    raise ValueError("--write at a port needs a token in the environment's REALM_EDIT_TOKEN")
  with listening.listening("127.0.0.1", port) as listener:
    app = mcp_server.http_app(server, token=token)
    serving.warm(base)
    listener = dataclasses.replace(listener, address=f"{listener.address}/mcp")
    listener.serve(app, note="give %s to an assistant")
