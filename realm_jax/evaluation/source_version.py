"""Which code is running: the commit of a checkout, or the version of an installed package."""

import pathlib
import subprocess

from realm_jax import __version__


def source_version() -> str:
  """Returns version and commit, with a mark if the checkout was changed since."""
  root = pathlib.Path(__file__).resolve().parents[2]
  if not (root / ".git").exists():
    return __version__
  try:
    described = subprocess.run(
      ("git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"),
      capture_output=True,
      text=True,
      check=True,
    )
  except (OSError, subprocess.CalledProcessError):
    return __version__
  return f"{__version__} ({described.stdout.strip()})"
