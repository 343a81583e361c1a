"""A training that everything happens to: does it end as if nothing had?

A trainer and an index builder of the almanac are killed again and again (SIGKILL) and started anew,
as a cluster would; some kills are timed to hit a checkpoint or a generation half-written. Published
generations are torn and cut short before the trainer reads them. On a disk the disk fills up; in an
object store (an emulated one on loopback) requests are refused with 503 or take long.

Then every step must be there once, every generation that was used whole, and the losses those of a
training that nothing happened to, given the same generations at the same steps. The run's own
account of its time must have every second that the drill measured.

  python benchmarks/failure_drill.py --store=disk --output=failure_drill.json
  python benchmarks/failure_drill.py --store=gcs --output=failure_drill_gcs.json
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from unittest import mock

from emulated_gcs import EmulatedGcs

from realm_jax import main as realm
from realm_jax import object_store
from realm_jax.corpus import chunking
from realm_jax.index import generations
from realm_jax.jobs.preparation import learn_vocabulary, make_almanac, prepare_corpus, upload
from realm_jax.jobs.training import pretrain as pretraining
from realm_jax.retrieval import index_refresher
from realm_jax.runs.supervisor import sigterm_interrupts
from realm_jax.runs.swap_log import SWAPS_FILE
from realm_jax.training import checkpoints, goodput
from realm_jax.training.metric_writers import METRICS_FILE

CHECKPOINT_EVERY = 20
MAX_STALENESS = 60
_TINY_MODEL = pathlib.Path(__file__).parents[1] / "gin" / "jobs" / "tiny.gin"
_SETTINGS = f"""
from __gin__ import dynamic_registration
include "{_TINY_MODEL}"
from realm_jax.retrieval import index_refresher
from realm_jax.runs import training_config
index_refresher.RefreshConfig.poll_seconds = 0.05
index_refresher.RefreshConfig.max_staleness_steps = {MAX_STALENESS}
index_refresher.RefreshConfig.when_late = "wait"
training_config.RunConfig.checkpoint_every = {CHECKPOINT_EVERY}
training_config.RunConfig.keep_checkpoints = 1000
"""
_BUILDER = """
from __gin__ import dynamic_registration
from realm_jax.indexing import builder_config
from realm_jax.jobs.training import build_index
builder_config.BuilderConfig.keep = 1000
build_index.build_index.poll_seconds = 0.05
build_index.build_index.recheck_seconds = 1.0
build_index.build_index.follow = True
"""
_WHOLE_RUN_SECONDS = 1500
_FULL_DISK_SECONDS = 4
_BAD_STORE_SECONDS = 6
_PYTHON_SECONDS = 5  # before the first line of a run and after its last one


@dataclasses.dataclass(frozen=True)
class Event:
  """Something that happens once a step is reached."""

  step: int
  name: str


class Drill:
  """One run and what happens to it.

  Args:
    directory: local, empty; of the run itself unless there is a store.
    store: where the run is instead; None: on the disk.
    num_steps: of the run.
    seed: of times and victims.
  """

  def __init__(self, directory: str, *, store: EmulatedGcs | None, num_steps: int, seed: int):
    self.directory = directory
    self.store = store
    self.num_steps = num_steps
    self.root = directory if store is None else "gs://bucket/drill"
    self.index = f"{self.root}/index"
    self.workdir = f"{self.root}/run"
    self.happened: Counter[str] = Counter()
    self.restarts: Counter[str] = Counter()
    self.damaged: list[int] = []
    self._random = random.Random(seed)
    self._running: dict[str, subprocess.Popen] = {}

  def prepare(self) -> None:
    """Makes corpora and the configuration."""
    here = self.directory
    make_almanac.make_almanac(
      output=f"{here}/almanac", num_invented_entities=60, num_edits=6, seed=0
    )
    texts = {"passages": f"{here}/almanac/documents.jsonl"}
    texts["training"] = f"{here}/almanac/training.jsonl"
    vocabulary = f"{here}/vocabulary"
    learn_vocabulary.learn_vocabulary(
      inputs=list(texts.values()), output=vocabulary, vocab_size=1024
    )
    for name, path in texts.items():
      prepare_corpus.prepare_corpus(
        input=path,
        output=f"{here}/{name}",
        vocabulary=vocabulary,
        chunking=chunking.ChunkingConfig(max_passage_length=32),
        num_shards=1,
      )
      if self.store is not None:
        upload.upload(f"{here}/{name}", output=f"{self.root}/{name}")
    pathlib.Path(here, "trainer.gin").write_text(_SETTINGS)
    pathlib.Path(here, "builder.gin").write_text(_BUILDER)

  def run(self, events: list[Event]) -> None:
    """Trains to the end while the events happen in their order.

    Raises:
      RuntimeError: If the run does not come to its end.
    """
    started = time.monotonic()
    waiting = list(events)
    while True:
      if time.monotonic() - started > _WHOLE_RUN_SECONDS:
        raise RuntimeError(f"no end after {_WHOLE_RUN_SECONDS} s, at step {self._reached()}")
      if self._keep_running():
        break
      if waiting and self._reached() >= waiting[0].step:
        event = waiting.pop(0)
        EVENTS[event.name](self)
        self.happened[event.name] += 1
        print(f"  step {self._reached():4d}: {event.name}", flush=True)
      time.sleep(0.05)
    if waiting:
      raise RuntimeError(f"the run ended before {waiting}")

  def end(self) -> None:
    """Ends what still runs."""
    for process in self._running.values():
      process.kill()
      process.wait()

  def _keep_running(self, *names: str) -> bool:
    """Starts what does not run; returns whether the trainer has finished."""
    for name in names or ("trainer", "builder"):
      process = self._running.get(name)
      if process is not None and process.poll() is None:
        continue
      if process is not None and process.returncode == 0:
        if name == "trainer":
          return True
        continue
      if process is not None:
        self.restarts[name] += 1
      with open(os.path.join(self.directory, f"{name}.log"), "ab") as log:
        self._running[name] = subprocess.Popen(
          [sys.executable, "-m", "realm_jax.main", *self.command(name)], stdout=log, stderr=log
        )
    return False

  def command(self, name: str) -> list[str]:
    """Returns the arguments of the trainer or the builder."""
    if name == "builder":
      keywords = {"checkpoints": f"{self.workdir}/checkpoints", "until_step": self.num_steps}
    else:
      keywords = {
        "workdir": self.workdir,
        "corpus": f"{self.root}/training",
        "num_steps": self.num_steps,
      }
    keywords |= {"passages": f"{self.root}/passages", "index": self.index}
    return [
      "build_index" if name == "builder" else "pretrain",
      f"--gin_file={self.directory}/{name}.gin",
      *(f"--{keyword}={value}" for keyword, value in keywords.items()),
    ]

  def _reached(self) -> int:
    """Returns the step of the newest checkpoint."""
    return max(self._named("run/checkpoints/*/commit_success.txt", "run/checkpoints/*"), default=0)

  def _named(self, in_store: str, on_disk: str) -> Iterator[int]:
    """Yields the numbers of finished checkpoints or generations, cheaply."""
    if self.store is None:
      names = (path.name for path in pathlib.Path(self.directory).glob(on_disk))
    else:
      found = (pathlib.PurePath(name) for name in self.store.names())
      names = (path.parent.name for path in found if path.match(f"drill/{in_store}"))
    return (int(name) for name in names if name.isdigit())

  def _half_written(self, where: str) -> bool:
    """Returns whether a checkpoint or generation is being written."""
    if self.store is None:
      return any(pathlib.Path(self.directory, where).glob("*.orbax-checkpoint-tmp*"))
    under_way, finished = set(), set()
    for name in self.store.names():
      parts = name.removeprefix(f"drill/{where}/").split("/")
      if name.startswith(f"drill/{where}/") and len(parts) > 1:
        (finished if parts[1] == "commit_success.txt" else under_way).add(parts[0])
    return bool(under_way - finished)

  def _kill(self, name: str) -> None:
    # A victim that is just starting is one, too.
    if self._keep_running():
      raise RuntimeError(f"the training ended before the {name} could be killed; raise num_steps")
    self._running[name].kill()
    self._running[name].wait()

  def kill_any_time(self, name: str) -> None:
    time.sleep(self._random.uniform(0, 2))
    self._kill(name)

  def kill_in_the_middle(self, name: str, where: str) -> None:
    """Kills a process while it writes a checkpoint or a generation."""
    deadline = time.monotonic() + 60
    while not self._half_written(where) and time.monotonic() < deadline:
      self._keep_running()
      time.sleep(0.0005)
    self._kill(name)

  def damage_next_generation(self, how: Callable[[bytes], bytes]) -> None:
    """Changes an array of the next generation before the trainer can have seen it."""
    number = None
    while number is None:
      self._keep_running()
      trainer = self._running["trainer"]
      trainer.send_signal(signal.SIGSTOP)
      number = self._next_generation()
      if number is not None:
        self._damage(number, how)
        self.damaged.append(number)
      trainer.send_signal(signal.SIGCONT)
      # Where the builder had nothing to do, the trainer must save first.
      time.sleep(self._random.uniform(0.2, 1))

  def _next_generation(self) -> int | None:
    """Waits for a generation that is not there yet."""
    before = self._generations()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
      if new := self._generations() - before:
        return max(new)
      self._keep_running("builder")
      time.sleep(0.002)
    return None

  def _generations(self) -> set[int]:
    return set(self._named("index/*/commit_success.txt", "index/*"))

  def _damage(self, number: int, how: Callable[[bytes], bytes]) -> None:
    if self.store is not None:
      inside = f"drill/index/{number}/shard_00000/"
      files = [name for name in self.store.names() if name.startswith(inside)]
      longest = max(files, key=lambda name: len(self.store.read(name)))
      self.store.write(longest, how(self.store.read(longest)))
      return
    below = pathlib.Path(self.index, str(number), "shard_00000").rglob("*")
    longest = max((p for p in below if p.is_file()), key=lambda path: path.stat().st_size)
    longest.write_bytes(how(longest.read_bytes()))

  def fill_the_disk(self) -> None:
    filler = pathlib.Path(self.directory, "filler")
    with open(filler, "wb") as file, contextlib.suppress(OSError):
      while True:
        file.write(bytes(1 << 20))
        file.flush()
    self._go_on(_FULL_DISK_SECONDS)
    filler.unlink()

  def refuse_requests(self) -> None:
    self.store.refuse(lambda method, path: self._random.random() < 0.1)
    self._go_on(_BAD_STORE_SECONDS)
    self.store.refuse(lambda method, path: False)

  def slow_down(self) -> None:
    self.store.delay = 0.1
    self._go_on(_BAD_STORE_SECONDS)
    self.store.delay = 0.0

  def _go_on(self, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
      self._keep_running()
      time.sleep(0.1)

  def rows(self, name: str) -> list[dict]:
    """Returns what the run appended to a file."""
    text = object_store.Path(f"{self.workdir}/{name}").read_text()
    return [json.loads(line) for line in text.splitlines()]

  def generation_of_each_batch(self) -> list[int]:
    """Returns the generation that the batch of each step was retrieved with."""
    found = []
    for row in self.rows(METRICS_FILE):
      step = row["step"] - 1
      if "index/generation" in row:
        found.append(int(row["index/generation"]))
      elif step == 0:
        started = [row for row in self.rows(SWAPS_FILE) if row["step"] == 0]
        found.append(started[-1]["generation"])
      else:  # the batch in flight of the checkpoint that the run went on from
        path = checkpoints.resolve(f"{self.workdir}/checkpoints", step=step)
        found.append(checkpoints.read_metadata(path)["generation"])
    return found

  def losses_undisturbed(self, schedule: list[int]) -> list[float]:
    """Trains in this process, in one go, with the generation given for each batch."""

    class Scheduled(index_refresher.IndexRefresher):
      """Gives the generations of a schedule."""

      def first(self, *, wanted=None, stop):
        del wanted, stop
        self._current = self._generations.load(schedule[0])
        return True

      def before_step(self, step, *, stop):
        del stop
        if step < len(schedule) and schedule[step] != self.current.generation:
          self._current = self._generations.load(schedule[step])
          yield self.current

    workdir = f"{self.directory}/undisturbed"
    command = [a for a in self.command("trainer") if not a.startswith("--workdir=")]
    with mock.patch.object(pretraining, "IndexRefresher", Scheduled):
      code = realm.main([*command, f"--workdir={workdir}", "--generation=0"])
    if code:
      raise RuntimeError(f"the undisturbed training ended with exit code {code}")
    with open(f"{workdir}/{METRICS_FILE}", encoding="utf-8") as file:
      return [json.loads(line)["loss/total"] for line in file]

  def findings(self) -> dict[str, object]:
    """Compares the run with what it must be; every value says what was found."""
    rows = self.rows(METRICS_FILE)
    schedule = self.generation_of_each_batch()
    published = generations.all_generations(self.index)
    whole = [number for number in published if _is_whole(self.index, number)]
    swaps = [row["generation"] for row in self.rows(SWAPS_FILE)]
    undisturbed = self.losses_undisturbed(schedule)
    losses = [row["loss/total"] for row in rows]
    left = [
      name
      for name in ("index", "run/checkpoints")
      if self.store is None and any(pathlib.Path(self.directory, name).glob("*tmp*"))
    ]
    return {
      "steps asked": self.num_steps,
      "steps written, each once": len({row["step"] for row in rows}) if _rise(rows) else 0,
      "last checkpoint": checkpoints.steps(f"{self.workdir}/checkpoints")[-1],
      "generations published": len(published),
      "generations damaged": len(self.damaged),
      "generations used": len(set(swaps)),
      "of those damaged": len(set(swaps) & set(self.damaged)),
      "of those not whole": len(set(swaps) - set(whole)),
      "damaged and recognised": len(set(self.damaged) - set(whole)),
      "losses unlike the undisturbed training's": sum(
        a != b for a, b in zip(losses, undisturbed, strict=True)
      ),
      "half-written and left behind": len(left),
    }


EVENTS: dict[str, Callable[[Drill], None]] = {
  "trainer killed at any time": lambda drill: drill.kill_any_time("trainer"),
  "trainer killed in mid-checkpoint": lambda drill: drill.kill_in_the_middle(
    "trainer", "run/checkpoints"
  ),
  "builder killed at any time": lambda drill: drill.kill_any_time("builder"),
  "builder killed in mid-publication": lambda drill: drill.kill_in_the_middle("builder", "index"),
  "generation torn": lambda drill: drill.damage_next_generation(_flip),
  "generation cut short": lambda drill: drill.damage_next_generation(lambda b: b[: len(b) // 2]),
  "disk full": Drill.fill_the_disk,
  "503s": Drill.refuse_requests,
  "store slow": Drill.slow_down,
}
_KILLS = [name for name in EVENTS if "killed" in name]
_DAMAGES = ["generation torn", "generation cut short"]


def _flip(content: bytes) -> bytes:
  middle = len(content) // 2
  return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def _rise(rows: list[dict]) -> bool:
  steps = [row["step"] for row in rows]
  return steps == sorted(set(steps))


def _is_whole(index: str, number: int) -> bool:
  try:
    shards = len(generations.read_manifest(index, number).shards)
    for shard in range(shards):
      generations.restore(index, number, shard)
  except generations.DamagedGenerationError:
    return False
  return True


def plan(*, num_kills: int, on_disk: bool, damages: int, num_steps: int, seed: int) -> list[Event]:
  """Draws what happens when: kills of every kind, damages, and what the store does."""
  draw = random.Random(seed)
  names = [_KILLS[i % len(_KILLS)] for i in range(num_kills)]
  names += [name for name in _DAMAGES for _ in range(damages)]
  names += ["disk full"] if on_disk else ["503s", "store slow"]
  draw.shuffle(names)
  steps = sorted(draw.sample(range(1, num_steps - 2 * MAX_STALENESS), len(names)))
  return [Event(step, name) for step, name in zip(steps, names, strict=True)]


def table(drill: Drill, findings: dict[str, object], account: goodput.Account) -> str:
  """Returns what happened and what was found, as Markdown."""
  lines = ["| what happened | times |", "|---|---|"]
  lines += [f"| {name} | {drill.happened[name]} |" for name in EVENTS if drill.happened[name]]
  lines += [f"| restarts of the {name} | {n} |" for name, n in sorted(drill.restarts.items())]
  if drill.store is not None:
    lines += [f"| requests answered with 503, of {sum(drill.store.requests.values()):,} |"]
    lines[-1] += f" {drill.store.refused} |"
  lines += ["", "| what was found | |", "|---|---|"]
  lines += [f"| {name} | {value} |" for name, value in findings.items()]
  lines += ["", "| where the time went | seconds | share |", "|---|---|---|"]
  lines += [f"| {name} | {s:.1f} | {share:.1%} |" for name, s, share in account.table()]
  return "\n".join(lines)


def is_whole(findings: dict[str, object]) -> bool:
  """Tells a run that ended as it should."""
  asked = findings["steps asked"]
  unaccounted = findings["seconds"] - findings["seconds accounted for"]
  return (
    findings["steps written, each once"] == findings["last checkpoint"] == asked
    and findings["of those damaged"] == findings["of those not whole"] == 0
    and findings["damaged and recognised"] == findings["generations damaged"]
    and findings["losses unlike the undisturbed training's"] == 0
    and findings["half-written and left behind"] == 0
    and abs(unaccounted) < max(0.01 * findings["seconds"], _PYTHON_SECONDS)
  )


def _on_a_small_disk() -> None:
  """Starts this program again where a file system of its own may be mounted."""
  os.environ["REALM_DRILL"] = tempfile.mkdtemp(prefix="realm_drill_")
  mount = 'mount -t tmpfs -o size=300m drill "$REALM_DRILL" && exec "$@"'
  command = ["unshare", "-rm", "sh", "-c", mount, "sh", sys.executable, *sys.argv]
  code = subprocess.run(command).returncode
  os.rmdir(os.environ["REALM_DRILL"])
  sys.exit(code)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--store", choices=["disk", "gcs"], default="disk")
  parser.add_argument("--kills", type=int, default=20)
  parser.add_argument("--damages", type=int, default=2, help="of each kind")
  parser.add_argument("--num_steps", type=int, default=900)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--output", help="JSON file of the table")
  arguments = parser.parse_args()
  on_disk = arguments.store == "disk"
  if on_disk and "REALM_DRILL" not in os.environ:
    _on_a_small_disk()
  directory = os.environ.get("REALM_DRILL") or tempfile.mkdtemp(prefix="realm_drill_")
  os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{directory}/compiled"
  os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
  os.environ["REALM_CACHE"] = f"{directory}/cache"
  events = plan(
    num_kills=arguments.kills,
    on_disk=on_disk,
    damages=arguments.damages,
    num_steps=arguments.num_steps,
    seed=arguments.seed,
  )
  with sigterm_interrupts(), contextlib.ExitStack() as stack:
    store = None
    if not on_disk:
      store = stack.enter_context(EmulatedGcs())
      os.environ.update(store.environment)
    drill = Drill(directory, store=store, num_steps=arguments.num_steps, seed=arguments.seed)
    stack.callback(drill.end)
    drill.prepare()
    started = time.monotonic()
    drill.run(events)
    seconds = time.monotonic() - started
    account = goodput.account(drill.rows(goodput.GOODPUT_FILE))
    findings = {
      **drill.findings(),
      "seconds": round(seconds, 1),
      "seconds accounted for": round(account.wall, 1),
    }
  text = table(drill, findings, account)
  print(f"\n{text}", flush=True)
  if arguments.output:
    content = {"happened": drill.happened, "restarts": drill.restarts, "found": findings}
    content["time"] = account.seconds
    pathlib.Path(arguments.output).write_text(json.dumps(content, indent=2) + "\n")
  if not on_disk:
    shutil.rmtree(directory)
  if not is_whole(findings):
    sys.exit("the run is not whole")


if __name__ == "__main__":
  main()
