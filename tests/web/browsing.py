"""A real browser: Debian's `chromium`, driven by the extra `browser`."""

import contextlib
import pathlib
import shutil
import threading
import time

CHROMIUM = shutil.which("chromium")
SCREENSHOTS = pathlib.Path(__file__).parents[2] / "build" / "screenshots"


@contextlib.contextmanager
def served(app):
  """Yields the address of an application."""
  import uvicorn

  server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
  thread = threading.Thread(target=server.run)
  thread.start()
  while not server.started:
    time.sleep(0.01)
  try:
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
  finally:
    server.should_exit = True
    thread.join(timeout=20)
  assert not thread.is_alive()


def contrast(page, selector: str) -> float:
  """Returns the WCAG 2 contrast ratio between a text and its background."""
  colours = page.locator(selector).first.evaluate(
    """node => {
      const behind = (one) => {
        for (let at = one; at; at = at.parentElement) {
          const colour = getComputedStyle(at).backgroundColor;
          if (!/, 0\\)$/.test(colour)) return colour;
        }
      };
      return [getComputedStyle(node).color, behind(node)];
    }"""
  )
  bright, dim = sorted((_luminance(colour) for colour in colours), reverse=True)
  return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
  parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
  linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
