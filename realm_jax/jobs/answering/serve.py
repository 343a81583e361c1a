"""Serves the inspector: a page and an HTTP API that show what was retrieved and why."""

import dataclasses
import ipaddress
import random
import signal
import socket
from typing import TYPE_CHECKING

from absl import logging

from realm_jax.data.questions import read_questions
from realm_jax.inference.answerer import Answerer
from realm_jax.inspector.limit_settings import LimitSettings
from realm_jax.saved.answering_models import open_answerer
from realm_jax.saved.opening import Sources

if TYPE_CHECKING:
  import uvicorn

_TABLE_3 = (  # of Guu et al. 2020
  "An equilateral triangle is easily constructed using a straightedge and compass, because 3 is a "
  "[MASK] prime.",
  "Fermat",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecondModel:
  """A model shown next to the first, or one for questions if the first fills masks.

  Attributes:
    second_checkpoints: Its checkpoints. None uses those of the first if `second_step` is given, and
      otherwise opens no second model.
    second_index: Its generations; None uses those of the first.
    second_step: Step of its checkpoint; None uses the newest.
    second_generation: Its generation; None uses the newest.
  """

  second_checkpoints: str | None = None
  second_index: str | None = None
  second_step: int | None = None
  second_generation: int | None = None

  def __post_init__(self):
    given = {"second_index": self.second_index, "second_generation": self.second_generation}
    unused = [f"--{name}" for name, value in given.items() if value is not None]
    if unused and self.second_checkpoints is None and self.second_step is None:
      raise ValueError(
        f"{', '.join(unused)} would do nothing without a second model; give --second_checkpoints "
        "or --second_step"
      )

  def sources(self, first: Sources) -> tuple[Sources, ...]:
    """Returns the sources of the second model, given those of the first; empty if there is none."""
    if self.second_checkpoints is None and self.second_step is None:
      return ()
    second = dataclasses.replace(
      first,
      checkpoints=self.second_checkpoints or first.checkpoints,
      index=self.second_index or first.index,
      step=self.second_step,
      generation=self.second_generation,
    )
    return (second,)


def serve(
  *,
  sources: Sources,
  second: SecondModel = SecondModel(),
  names: tuple[str, str] = ("this model", "second model"),
  history: int = 6,
  max_answer_length: int = 4,
  questions: tuple[str, ...] = (),
  num_examples: int = 6,
  host: str = "127.0.0.1",
  port: int = 8080,
  limits: LimitSettings = LimitSettings(),
) -> None:
  """Opens one or two models, and serves until told to stop.

  Args:
    sources: The model, the corpus and its index.
    second: A second model over the same corpus.
    names: Names of the two models.
    history: Number of generations whose rankings are compared; each model holds them in memory.
    max_answer_length: Maximum wordpieces that fill a mask.
    questions: JSON Lines of questions or masked sentences; some are offered as examples.
    num_examples: Number of examples from each file.
    host: Address to listen on; 0.0.0.0 is every address of this machine.
    port: Port to listen on; 0 chooses a free one, which the printed address shows.
    limits: Which requests are accepted; on a loopback address, `hosts` are local names by default.

  Raises:
    FileNotFoundError: If an input is missing.
    ValueError: If the inputs do not match, the port is taken, or FastAPI or uvicorn is not
      installed.
  """
  try:
    import uvicorn

    from realm_jax.inspector import page, server
    from realm_jax.inspector.service import AnsweringService
  except ImportError as error:
    raise ValueError(
      f"{error}; `realm serve` needs the extra: pip install -e '.[serve]' in the checkout"
    ) from error
  if not 0 <= port < 65536:
    raise ValueError(f"port={port}; use 0 to 65535")
  # Before the models are opened, which takes seconds.
  listener = _bound(host, port)
  models = {
    name: open_answerer(opened, max_answer_length=max_answer_length, history=history)
    for name, opened in zip(names, (sources, *second.sources(sources)), strict=False)
  }
  for model in models.values():
    model.warm_up()
  examples = [example for path in questions for example in _examples(path, num_examples)]
  if any(_takes(model, *_TABLE_3) for model in models.values()):
    examples.append(_TABLE_3)
  app = server.make_app(
    AnsweringService(models),
    limits=dataclasses.replace(limits, hosts=limits.hosts or _local_names(host)),
    examples=[page.Example(text=text, answer=answer) for text, answer in examples],
  )
  config = uvicorn.Config(
    app,
    log_level="warning",
    server_header=False,
    timeout_keep_alive=30,
    timeout_graceful_shutdown=10,
  )
  address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
  _run(uvicorn.Server(config), listener, address=address)


def _run(running: "uvicorn.Server", listener: socket.socket, *, address: str) -> None:
  """Serves until a signal ends it."""

  def stop(*_) -> None:
    # Called before uvicorn installs its own handlers, and after it has shut down, when it raises
    # the signal again for the previous handlers.
    running.should_exit = True

  signals = (signal.SIGTERM, signal.SIGINT)
  before = [signal.signal(number, stop) for number in signals]
  try:
    listener.listen()
    logging.info("the inspector is at %s", address)
    print(address, flush=True)
    running.run(sockets=[listener])
  finally:
    for number, handler in zip(signals, before, strict=True):
      signal.signal(number, handler)


def _bound(host: str, port: int) -> socket.socket:
  """Returns a socket bound to the address that does not listen yet."""
  listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
  listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
  try:
    listener.bind((host, port))
  except OSError as error:
    listener.close()
    raise ValueError(
      f"cannot listen at {host}, port {port}: {error.strerror}; choose another --port or --host"
    ) from error
  return listener


def _local_names(host: str) -> tuple[str, ...]:
  """Returns the local names of a server on a loopback address; empty for others."""
  try:
    local = ipaddress.ip_address(host).is_loopback
  except ValueError:
    local = host == "localhost"
  return ("127.0.0.1", "localhost", "[::1]") if local else ()


def _takes(model: Answerer, text: str, answer: str) -> bool:
  try:
    return model.kind == "mask" and bool(model.explain([text], target=answer))
  except ValueError:  # too long for it
    return False


def _examples(path: str, number: int) -> list[tuple[str, str]]:
  questions = read_questions(path)
  drawn = random.Random(0).sample(questions, min(number, len(questions)))
  return [
    (question.masked_text if question.span else question.text, question.answer)
    for question in drawn
  ]
