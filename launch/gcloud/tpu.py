"""Runs realm_jax jobs on Cloud TPU slices through the gcloud command line.

  python launch/gcloud/tpu.py create trainer --type=v4-128 --zone=us-central2-b --project=my-project
  python launch/gcloud/tpu.py wait   trainer
  python launch/gcloud/tpu.py copy   trainer
  python launch/gcloud/tpu.py start  trainer -- pretrain --coordinator=auto --workdir=gs://...
  python launch/gcloud/tpu.py logs   trainer
  python launch/gcloud/tpu.py stop   trainer
  python launch/gcloud/tpu.py delete trainer
  python launch/gcloud/tpu.py keep   trainer --type=v4-128 --spot -- pretrain --coordinator=auto ...

Every command can be repeated; --dry_run prints the gcloud commands instead of running them. Zone
and project default to gcloud's settings. `create` and `keep` pass unknown flags on to
`gcloud compute tpus queued-resources create`; with --after=gs://.../index they first wait until an
index builder has published a generation there. README.md in this directory has a table of slices.
"""

import argparse
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ARCHIVE = "realm_jax.tar.gz"
# By the first part of a slice's type.
RUNTIMES = {
  "v2": "tpu-ubuntu2204-base",
  "v3": "tpu-ubuntu2204-base",
  "v4": "tpu-ubuntu2204-base",
  "v5litepod": "v2-alpha-tpuv5-lite",
  "v5p": "v2-alpha-tpuv5",
  "v6e": "v2-alpha-tpuv6e",
}
# The number of a slice counts cores, of which these have two in a device.
CORES_PER_DEVICE = {"v4": 2, "v5p": 2}
# What gcloud says, and what it means.
EXPLANATIONS = (
  (
    r"API has not been used in project|SERVICE_DISABLED",
    "the API is off in this project; run `gcloud services enable tpu.googleapis.com`",
  ),
  (r"quota", "no quota left for this type in this zone; ask for more, or go smaller"),
  (r"RESOURCE_EXHAUSTED|no more capacity|stockout", "the zone has no free slice; wait, or --spot"),
  (r"reauth|gcloud auth login|active account", "gcloud is not signed in; run `gcloud auth login`"),
  (
    r"(zone|location)\b.{0,60}(not found|invalid|unknown|or it may not exist)"
    r"|(unknown|invalid) (zone|location)|'locations/[^']*' \(or it may not exist\)",
    "no such zone for TPUs",
  ),
  (r"PERMISSION_DENIED|does not have permission|403", "permission denied; see roles/tpu.admin"),
  (r"project.*(not found|invalid)|\[project\]", "no such project; give --project"),
  (
    r"bucket.*(not exist|not found)|gs://\S+ not found|NoSuchBucket",
    "no such bucket; make it in the slice's region",
  ),
  (r"NOT_FOUND|not found", "there is nothing of this name; make it with `create`"),
  (r"accelerator.?type|AcceleratorType", "no such slice in this zone; README.md has a table"),
)
_LOST = (None, "FAILED", "SUSPENDED")  # states that never become ACTIVE again
_POLL_SECONDS = 30
_PATIENCE = 10  # polls in which a slice may answer nothing before it is taken away


class LaunchError(Exception):
  """What went wrong, in one line."""


class Gcloud:
  """Runs gcloud, or prints what it would run.

  Args:
    common: Flags of every command, such as the zone.
    ssh: Flags of the commands that reach the hosts, such as `--internal-ip`.
    dry_run: Whether to print only.
  """

  def __init__(self, *, common: Sequence[str] = (), ssh: Sequence[str] = (), dry_run: bool = False):
    self._common = common
    self._ssh = ssh
    self.dry_run = dry_run

  def __call__(self, *words: str, capture: bool = False) -> str:
    """Returns what gcloud writes to stdout, if captured; its prompts and errors are shown.

    Raises:
      LaunchError: If gcloud fails.
    """
    tpus = ("compute", "tpus", "queued-resources")
    return self._run(*tpus, *words, *self._common, capture=capture)

  def _run(self, *words: str, capture: bool) -> str:
    command = ["gcloud", *words]
    if self.dry_run:
      print(shlex.join(command))
      return ""
    # gcloud asks nothing unless its standard error is a terminal.
    reading, writing = pty.openpty() if sys.stderr.isatty() and not capture else os.pipe()
    try:
      process = subprocess.Popen(
        command, stdout=subprocess.PIPE if capture else None, stderr=writing
      )
    except FileNotFoundError as error:
      raise LaunchError("gcloud is not on the PATH; install the Google Cloud CLI") from error
    finally:
      os.close(writing)
    said = b""
    while part := _read(reading):  # a prompt ends without a newline
      said += part
      if not capture:
        sys.stderr.write(part.decode(errors="replace"))
        sys.stderr.flush()
    os.close(reading)
    out = process.communicate()[0] or b""
    if process.returncode:
      raise LaunchError(explain(said.decode(errors="replace")))
    return out.decode()

  def is_there(self, pattern: str) -> bool:
    """Returns whether an object in the object store matches a pattern."""
    try:
      return bool(self._run("storage", "ls", pattern, capture=True))
    except LaunchError as error:
      if "matched no objects" in str(error):
        return False
      raise

  def on_hosts(self, name: str, script: str, *, hosts: str = "all", capture: bool = False) -> str:
    """Runs a shell script on hosts of every slice of a queued resource."""
    where = ("--node=all", f"--worker={hosts}")
    return self("ssh", name, *where, f"--command={script}", *self._ssh, capture=capture)

  def upload(self, path: str, name: str) -> None:
    """Copies a file to the home directory of every host."""
    target = f"{name}:{os.path.basename(path)}"
    self("scp", path, target, "--node=all", "--worker=all", *self._ssh)

  def describe(self, name: str) -> dict | None:
    """Returns what is known of a queued resource, None if there is none."""
    try:
      described = self("describe", name, "--format=json", capture=True)
    except LaunchError as error:
      if "NOT_FOUND" in str(error):
        return None
      raise
    return json.loads(described) if described else None

  def state(self, name: str) -> str | None:
    """Returns the state of a queued resource, None if there is none."""
    described = self.describe(name)
    return described["state"]["state"] if described else None


def _read(file: int) -> bytes:
  try:
    return os.read(file, 4096)
  except OSError:  # the end of a terminal that nobody has open any more
    return b""


def explain(message: str) -> str:
  """Returns gcloud's error in one line, with its meaning if known."""
  lines = [line.strip() for line in message.splitlines() if line.strip()]
  said = next((line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "?")
  for pattern, meaning in EXPLANATIONS:
    if re.search(pattern, message, re.IGNORECASE):
      return f"{meaning} ({said})"
  return said


def create(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Requests a slice, unless it was requested before."""
  state = gcloud.state(args.name)
  if state is not None:
    print(f"{args.name} is there already: {state}")
    return
  family = args.type.split("-")[0]
  runtime = args.runtime or RUNTIMES.get(family)
  if runtime is None:
    raise LaunchError(f"--type={args.type}: no runtime is known for {family}; give --runtime")
  if args.after is not None:
    _wait_for_generation(gcloud, args.after)
  several = any(flag.startswith("--node-count") for flag in args.gcloud)
  gcloud(
    "create",
    args.name,
    f"--node-prefix={args.name}" if several else f"--node-id={args.name}",
    f"--accelerator-type={args.type}",
    f"--runtime-version={runtime}",
    *args.gcloud,
  )


def _wait_for_generation(gcloud: Gcloud, index: str) -> None:
  """Waits until an index has a generation, so that no slice is held while the first one is made."""
  while not gcloud.is_there(f"{index.rstrip('/')}/*/commit_success.txt") and not gcloud.dry_run:
    print(f"{index} has no generation yet", flush=True)
    time.sleep(_POLL_SECONDS)


def wait(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Waits until the slice is active."""
  while (state := gcloud.state(args.name)) != "ACTIVE":
    if gcloud.dry_run:
      return
    if state in _LOST:
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
      changed = subprocess.check_output(["git", "-C", ROOT, "status", "--porcelain"], text=True)
      if changed:
        print(f"not committed, so not copied:\n{changed}", end="", file=sys.stderr)
    gcloud.upload(archive, args.name)
  gcloud.on_hosts(args.name, INSTALL)


def start(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Starts a job on every host, unless it runs there; it survives crashes and reboots."""
  count = num_devices(gcloud.describe(args.name) or {})
  # A host whose TPU does not come up would compute on its CPU.
  devices = ["JAX_PLATFORMS=tpu", *([f"REALM_DEVICES=tpu:{count}"] if count else [])]
  gcloud.on_hosts(args.name, start_script(args.job, environment=[*devices, *args.env]))


def num_devices(described: dict) -> int | None:
  """Returns the devices of a queued resource's slices as JAX counts them, None if unknown."""
  specs, count = described.get("tpu", {}).get("nodeSpec", ()), 0
  for spec in specs:
    family, _, number = spec["node"].get("acceleratorType", "").partition("-")
    if not number.isdecimal():
      return None
    slices = int(spec.get("multisliceParams", {}).get("nodeCount", 1))
    count += slices * int(number) // CORES_PER_DEVICE.get(family, 1)
  return count or None


def logs(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Follows the log of one host."""
  gcloud.on_hosts(args.name, "tail -n 100 -F realm_jax/realm.log", hosts=str(args.worker))


def stop(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Makes the job save and end on every host."""
  gcloud.on_hosts(args.name, STOP)


def delete(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Deletes the slice."""
  if not gcloud.dry_run and gcloud.state(args.name) is None:
    print(f"{args.name} is not there")
    return
  gcloud("delete", args.name, "--force", "--quiet")


def keep(gcloud: Gcloud, args: argparse.Namespace) -> None:
  """Runs a job to its end, on a new slice whenever the old one is preempted."""
  start_script(args.job, environment=args.env)  # rejected before a slice is asked for
  while True:
    if gcloud.state(args.name) in _LOST:
      delete(gcloud, args)
      create(gcloud, args)
    try:
      wait(gcloud, args)
      if gcloud.dry_run or not _is_running(gcloud, args.name):
        copy(gcloud, args)
      start(gcloud, args)
    except LaunchError as error:
      if not _is_taken_away(gcloud, args.name):
        raise
      print(f"{args.name}: {error}", file=sys.stderr)
    else:
      if gcloud.dry_run or _is_finished(gcloud, args.name):
        return
    print(f"{args.name} was taken away; asking for another one", flush=True)


def _job_states(gcloud: Gcloud, name: str) -> dict[str, str]:
  """Returns the state of the job on each host, by the host's name."""
  said = gcloud.on_hosts(name, JOB_STATE, capture=True)
  return dict(re.findall(r"^(\S+) (\S+)$", said, re.MULTILINE))


def _is_running(gcloud: Gcloud, name: str) -> bool:
  """Returns whether every host runs a job, whose files a new copy would change under it."""
  try:
    states = set(_job_states(gcloud, name).values())
  except LaunchError:  # then nothing can be copied either
    return False
  return bool(states) and states <= {"active", "activating"}


def _is_taken_away(gcloud: Gcloud, name: str) -> bool:
  """Returns whether a slice that could not be used is lost; its state says so only later."""
  for _ in range(_PATIENCE):
    if gcloud.state(name) != "ACTIVE":
      return True
    time.sleep(_POLL_SECONDS)
  return False


def _is_finished(gcloud: Gcloud, name: str) -> bool:
  """Waits for the end of a job; returns False if its slice is taken away before.

  Raises:
    LaunchError: If the job failed for good or was stopped, or nothing answers.
  """
  failures = 0
  while True:
    try:
      if gcloud.state(name) != "ACTIVE":
        return False
      states = _job_states(gcloud, name)
    except LaunchError as error:  # such as a host that reboots
      failures += 1
      if failures == _PATIENCE:
        raise
      print(f"{name}: {error}; asking again", file=sys.stderr)
    else:
      failures = 0
      if "finished" in states.values():  # all hosts end together
        print(f"{name}: the job is finished")
        return True
      if ended := [host for host in states if states[host] in ("failed", "stopped")]:
        raise LaunchError(
          f"the job has {states[ended[0]]} on {', '.join(ended)} and will not start again there; "
          "see `logs`, and `delete` the slice unless you `start` another one"
        )
    time.sleep(_POLL_SECONDS)


# Images of Ubuntu 22.04 have Python 3.10, and hold apt's locks for minutes when they start. The
# option of apt-get that waits is for one of the locks only, and add-apt-repository has none.
INSTALL = """\
set -e
when_unlocked() {
  until said=$(sudo LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@" 2>&1); do
    echo "$said" >&2
    case $said in *" lock "*) sleep 10 ;; *) return 1 ;; esac
  done
}
mkdir -p realm_jax
tar -xzf realm_jax.tar.gz -C realm_jax
cd realm_jax
if ! test -x .venv/bin/python; then
  if ! command -v python3.12 > /dev/null; then
    when_unlocked add-apt-repository -y ppa:deadsnakes/ppa
    when_unlocked apt-get install -qy python3.12 python3.12-venv
  fi
  python3.12 -m venv .venv
fi
.venv/bin/python -m pip install -q -c constraints.txt -e '.[tpu,gcs]'
"""
STOP = "sudo systemctl disable --now realm"
JOB_STATE = """\
state=$(systemctl is-active realm)
systemctl is-enabled --quiet realm || state=stopped
test ! -e realm_jax/finished || state=finished
echo "$HOSTNAME $state"
"""


def job_script(job: Sequence[str]) -> str:
  """Returns the shell script that systemd runs: the job, and a note when it is finished."""
  # A job that is told to stop before its end exits with 143; bash itself waits for it.
  return (
    "trap : TERM\n"
    f".venv/bin/python -m realm_jax.main {shlex.join(job)} & job=$!\n"
    "wait $job; code=$?\n"
    "while kill -0 $job 2>/dev/null; do wait $job; code=$?; done\n"
    '[ "$code" != 0 ] || touch finished\n'
    "exit $code\n"
  )


def unit(environment: Sequence[str]) -> str:
  """Returns the systemd unit of a job, with `$PWD` and `$USER` for a shell to fill in.

  The job starts with the host and after every failure, but not when it is finished, was stopped on
  purpose, or has a command line that it refuses (exit code 2).
  """
  return "\n".join(
    [
      "[Unit]",
      "Description=realm_jax job",
      "Wants=network-online.target",
      "After=network-online.target",
      "ConditionPathExists=!$PWD/finished",
      "StartLimitIntervalSec=3600",
      "StartLimitBurst=30",
      "[Service]",
      "User=$USER",
      "LimitMEMLOCK=infinity",  # libtpu pins host memory
      "LimitNOFILE=1048576",  # an index and a corpus are many files
      "WorkingDirectory=$PWD",
      *(f'Environment="{variable}"' for variable in environment),
      "ExecStart=/bin/bash $PWD/job.sh",
      "Restart=on-failure",
      "RestartPreventExitStatus=2",
      "RestartSec=15",
      "TimeoutStopSec=600",
      "StandardOutput=append:$PWD/realm.log",
      "StandardError=append:$PWD/realm.log",
      "[Install]",
      "WantedBy=multi-user.target",
      "",
    ]
  )


def start_script(job: Sequence[str], *, environment: Sequence[str] = ()) -> str:
  """Returns the shell script that makes a job a service of a host and starts it.

  Raises:
    LaunchError: If there is no job, or an environment variable is not of the form NAME=VALUE.
  """
  if not job:
    raise LaunchError("no job is given; end the line with: -- pretrain --gin_file=... ")
  for variable in environment:
    if not re.fullmatch(r'\w+=[^"\\%$`]*', variable):
      raise LaunchError(f"--env={variable} is not of the form NAME=VALUE")
  script = shlex.quote(job_script(job))
  return (
    "set -e; cd realm_jax; "
    f"if systemctl is-active --quiet realm; then printf %s {script} | cmp -s - job.sh && exit 0; "
    "echo 'another job runs here; `stop` it first' >&2; exit 1; fi; "
    f"rm -f finished; printf %s {script} > job.sh; "
    f"sudo tee /etc/systemd/system/realm.service > /dev/null <<REALM\n{unit(environment)}REALM\n"
    "sudo systemctl daemon-reload; "
    # One that failed too often would not be started for an hour.
    "sudo systemctl reset-failed realm 2> /dev/null || true; "
    "sudo systemctl enable --now realm"
  )


COMMANDS: dict[str, Callable[[Gcloud, argparse.Namespace], None]] = {
  command.__name__: command for command in (create, wait, copy, start, logs, stop, delete, keep)
}


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
  )
  commands = parser.add_subparsers(dest="command", required=True)
  for name, function in COMMANDS.items():
    command = commands.add_parser(name, help=function.__doc__, allow_abbrev=False)
    command.add_argument("name", help="name of the slice")
    command.add_argument("--zone")
    command.add_argument("--project")
    command.add_argument(
      "--ssh",
      action="append",
      default=[],
      metavar="FLAG",
      help="flag of gcloud's ssh and scp, such as --ssh=--internal-ip; may be repeated",
    )
    command.add_argument("--dry_run", action="store_true", help="print, run nothing")
    if name in ("create", "keep"):
      command.add_argument("--type", required=True, help="such as v4-128")
      command.add_argument("--runtime", help="TPU software version; by default that of the type")
      command.add_argument(
        "--after", metavar="gs://INDEX", help="ask for the slice when this index has a generation"
      )
    if name in ("start", "keep"):
      command.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
      )
    if name == "logs":
      command.add_argument("--worker", type=int, default=0)
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Runs one command and returns the exit code."""
  argv = list(sys.argv[1:] if argv is None else argv)
  end = argv.index("--") if "--" in argv else len(argv)
  parser = _parser()
  if not {"-h", "--help"}.intersection(argv) and any(word.startswith("-") for word in argv[:2]):
    parser.error("begin with a command and the slice's name: create NAME --type=...; then flags")
  args, args.gcloud = parser.parse_known_args(argv[:end])
  if args.gcloud and args.command not in ("create", "keep"):
    parser.error(f"{args.command} knows no {args.gcloud[0]}; the job comes after --")
  args.job = argv[end + 1 :]
  places = (("zone", args.zone), ("project", args.project))
  common = [f"--{name}={value}" for name, value in places if value]
  try:
    COMMANDS[args.command](Gcloud(common=common, ssh=args.ssh, dry_run=args.dry_run), args)
  except LaunchError as error:
    print(f"{args.command} {args.name}: {error}", file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    return 130
  return 0


if __name__ == "__main__":
  sys.exit(main())
