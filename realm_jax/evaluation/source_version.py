"""The version of the running code: the commit of a checkout, or the version of the package."""

import pathlib
import subprocess

from realm_jax import __version__


def source_version() -> str:
  """Returns version and commit, marked if the checkout has changes."""
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
