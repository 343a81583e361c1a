"""Runs realm_jax jobs on Cloud TPU slices through the gcloud command line.

  python launch/gcloud/tpu.py create trainer --type=v4-128 --zone=us-central2-b --project=my-project
  python launch/gcloud/tpu.py wait   trainer ...
  python launch/gcloud/tpu.py copy   trainer ...
  python launch/gcloud/tpu.py start  trainer ... -- pretrain --coordinator=auto --workdir=gs://...
  python launch/gcloud/tpu.py logs   trainer ...
  python launch/gcloud/tpu.py stop   trainer ...
  python launch/gcloud/tpu.py delete trainer ...

Every command may be repeated; --dry_run prints what would be run. Zone and project default to
gcloud's own settings. README.md beside this file says which slice to ask for.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ARCHIVE = "realm_jax.tar.gz"
RUNTIMES = {"v2": "tpu-ubuntu2204-base", "v3": "tpu-ubuntu2204-base", "v4": "tpu-ubuntu2204-base"}
RUNTIMES |= {"v5litepod": "v2-alpha-tpuv5-lite", "v6e": "v2-alpha-tpuv6e"}
# What gcloud says, and what it means.
EXPLANATIONS = (
  (
    r"quota",
    "no quota left for this type in this zone; ask for more, or go smaller",
  ),
  (r"RESOURCE_EXHAUSTED|no more capacity|stockout", "the zone has no free slice; wait, or --spot"),
  (r"reauth|gcloud auth login|active account", "gcloud is not signed in; run `gcloud auth login`"),
  (r"PERMISSION_DENIED|does not have permission|403", "this account may not; see roles/tpu.admin"),
  (r"zone.*(not found|invalid|unknown)|(unknown|invalid).*zone|location", "no such zone for TPUs"),
  (r"project.*(not found|invalid)|\[project\]", "no such project; give --project"),
  (r"bucket.*(not exist|not found)|NoSuchBucket", "no such bucket; make it in the slice's region"),
  (r"NOT_FOUND|not found", "nothing of this name; `create` makes it"),
  (r"accelerator.?type|AcceleratorType", "no such slice in this zone; README.md has a table"),
)
_POLL_SECONDS = 30


class LaunchError(Exception):
  """What went wrong, in one line."""


class Gcloud:
  """Runs gcloud, or prints what it would run.

  Args:
    zone, project: of the slices; None: gcloud's own settings.
    dry_run: whether to print only.
  """

  def __init__(self, *, zone: str | None, project: str | None, dry_run: bool):
    self._flags = [f"--{k}={v}" for k, v in (("zone", zone), ("project", project)) if v]
    self.dry_run = dry_run

  def __call__(self, *words: str, capture: bool = False) -> str:
    """Returns what gcloud wrote to stdout, where captured.

    Raises:
      LaunchError: if gcloud fails.
    """
    command = ["gcloud", "compute", "tpus", *words, *self._flags]
    if self.dry_run:
      print(shlex.join(command))
      return ""
    try:
      done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE if capture else None, stderr=subprocess.PIPE
      )
    except FileNotFoundError as error:
      raise LaunchError("gcloud is not on the PATH; install the Google Cloud CLI") from error
    if done.returncode:
      raise LaunchError(explain(done.stderr))
    return done.stdout or ""

  def on_workers(self, name: str, script: str, *, worker: str = "all") -> None:
    """Runs a shell script on the slice's hosts."""
    self("tpu-vm", "ssh", name, f"--worker={worker}", f"--command={script}")

  def state(self, name: str) -> str | None:
    """Returns the state of a queued resource; None where there is none."""
    words = ("queued-resources", "describe", name, "--format=json")
    try:
      described = self(*words, capture=True)
    except LaunchError as error:
      if "NOT_FOUND" in str(error):
        return None
      raise
    return json.loads(described)["state"]["state"] if described else None


def explain(message: str) -> str:
  """Returns gcloud's complaint in one line, with what it means where that is known."""
  lines = [line.strip() for line in message.splitlines() if line.strip()]
  said = next((line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "?")
  for pattern, meaning in EXPLANATIONS:
    if re.search(pattern, message, re.IGNORECASE):
      return f"{meaning} ({said})"
  return said


def create(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Asks for a slice, unless it was asked for before."""
  state = gcloud.state(args.name)
  if state is not None:
    print(f"{args.name} is there already: {state}")
    return
  family = args.type.split("-")[0]
  if family not in RUNTIMES:
    raise LaunchError(f"--type={args.type} is of no known family: {', '.join(RUNTIMES)}")
  gcloud(
    "queued-resources",
    "create",
    args.name,
    f"--node-id={args.name}",
    f"--accelerator-type={args.type}",
    f"--runtime-version={RUNTIMES[family]}",
    *(["--spot"] if args.spot else []),
  )


def wait(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Waits until the slice is there."""
  while (state := gcloud.state(args.name)) != "ACTIVE":
    if gcloud.dry_run:
      return
    if state in (None, "FAILED", "SUSPENDED"):
      raise LaunchError(f"{args.name} is {state or 'not asked for'}; `delete` and `create` it")
    print(f"{args.name}: {state}", flush=True)
    time.sleep(_POLL_SECONDS)


def copy(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Puts the committed state of this checkout on every host and installs it."""
  with tempfile.TemporaryDirectory() as directory:
    archive = os.path.join(directory, ARCHIVE)
    command = ["git", "-C", ROOT, "archive", "--format=tar.gz", f"--output={archive}", "HEAD"]
    if gcloud.dry_run:
      print(shlex.join(command))
    else:
      subprocess.run(command, check=True)
    gcloud("tpu-vm", "scp", archive, f"{args.name}:{ARCHIVE}", "--worker=all")
  gcloud.on_workers(args.name, INSTALL)


def start(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Starts a job on every host, unless one runs already; a killed one is started again."""
  if not args.job:
    raise LaunchError("no job is given; end the line with: -- pretrain --gin_file=... ")
  gcloud.on_workers(args.name, start_script(args.job))


def logs(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Follows the log of one host."""
  script = "tail -n 100 -F realm_jax/realm.log"
  gcloud.on_workers(args.name, script, worker=str(args.worker))


def stop(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Lets the job save and end, on every host."""
  gcloud.on_workers(args.name, STOP)


def delete(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Gives the slice back."""
  if not gcloud.dry_run and gcloud.state(args.name) is None:
    print(f"{args.name} is not there")
    return
  gcloud("queued-resources", "delete", args.name, "--force", "--quiet")


INSTALL = (
  "set -e; mkdir -p realm_jax; tar -xzf realm_jax.tar.gz -C realm_jax; cd realm_jax; "
  # Images of Ubuntu 22.04 have Python 3.10.
  "test -x .venv/bin/python || { command -v python3.12 >/dev/null || { "
  "sudo add-apt-repository -y ppa:deadsnakes/ppa && sudo apt-get install -qy python3.12 "
  "python3.12-venv; }; python3.12 -m venv .venv; }; "
  ".venv/bin/python -m pip install -q -c constraints.txt -e '.[tpu,gcs]'"
)
# The loop holds the lock: a second start finds it held, and stop ends the loop before the job. The
# brackets keep the pattern from matching the shell that it stands in.
STOP = "touch realm_jax/stop; pkill -TERM -f '[r]ealm_jax.main' || true"


def start_script(job: Sequence[str]) -> str:
  """Returns the shell script that runs a job until it ends by itself or is told to stop."""
  command = f".venv/bin/python -m realm_jax.main {shlex.join(job)}"
  # Exit codes from 128 on are signals: a preempted or killed job goes on where it was.
  loop = (
    f"while true; do {command}; code=$?; "
    "if [ -e stop ] || [ $code -lt 128 ]; then exit $code; fi; sleep 5; done"
  )
  guarded = f"flock -n realm.lock bash -c {shlex.quote(loop)}"
  return f"cd realm_jax && rm -f stop && (nohup {guarded} >> realm.log 2>&1 < /dev/null &)"


COMMANDS: dict[str, Callable[[Gcloud, argparse.Namespace], None]] = {
  command.__name__: command for command in (create, wait, copy, start, logs, stop, delete)
}


def main(argv: Sequence[str] | None = None) -> int:
  """Runs one command and returns the exit code."""
  argv = list(sys.argv[1:] if argv is None else argv)
  job = argv[argv.index("--") + 1 :] if "--" in argv else []
  argv = argv[: argv.index("--")] if "--" in argv else argv
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  commands = parser.add_subparsers(dest="command", required=True)
  for name, function in COMMANDS.items():
    command = commands.add_parser(name, help=function.__doc__)
    command.add_argument("name", help="of the slice")
    command.add_argument("--zone")
    command.add_argument("--project")
    command.add_argument("--dry_run", action="store_true", help="print, run nothing")
    if name == "create":
      command.add_argument("--type", required=True, help="such as v4-128")
      command.add_argument("--spot", action="store_true", help="cheaper, may be taken away")
    if name == "logs":
      command.add_argument("--worker", type=int, default=0)
  args = parser.parse_args(argv)
  args.job = job
  try:
    COMMANDS[args.command](Gcloud(zone=args.zone, project=args.project, dry_run=args.dry_run), args)
  except LaunchError as error:
    print(f"{args.command} {args.name}: {error}", file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    return 130
  return 0


if __name__ == "__main__":
  sys.exit(main())
