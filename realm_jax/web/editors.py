"""Who may change what is served: programs that send a token, and browsers that sent it once."""

import hmac
import secrets

import fastapi
from fastapi import Request

from realm_jax.web.refusals import ForbiddenError

_COOKIE = "realm_editor"
_MIN_LENGTH = 16


class Editors:
  """Those who know a token; nobody without one.

  Raises:
    ValueError: If the token is short enough to be guessed.
  """

  def __init__(self, token: str | None):
    if token is not None and len(token) < _MIN_LENGTH:
      raise ValueError(
        f"edit_token has {len(token)} characters; give at least {_MIN_LENGTH}, such as "
        f"{secrets.token_urlsafe(_MIN_LENGTH)}"
      )
    if token is not None and not token.isascii():
      raise ValueError("edit_token has characters that no header can carry; use ASCII ones")
    self._token = token
    self._cookie = secrets.token_urlsafe(24)  # so that the token itself is in no browser

  @property
  def exist(self) -> bool:
    """Whether anybody may change anything."""
    return self._token is not None

  def include(self, request: Request) -> bool:
    """Returns whether who sent a request may change something."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return self.exist and (
      (kind.lower() == "bearer" and self._is_token(token.strip()))
      or _equal(request.cookies.get(_COOKIE, ""), self._cookie)
    )

  def check(self, request: Request) -> None:
    """Raises ForbiddenError unless who sent a request may change something."""
    if not self.exist:
      raise ForbiddenError("documents cannot be changed here; start the server with an edit token")
    if not self.include(request):
      raise ForbiddenError("only with the edit token; send it as `Authorization: Bearer TOKEN`")

  def sign_in(self, response: fastapi.Response, token: str) -> None:
    """Lets the browser that gets the response change something.

    Raises:
      ForbiddenError: If the token is another.
    """
    if not self._is_token(token):
      raise ForbiddenError("this is not the edit token")
    response.set_cookie(_COOKIE, self._cookie, httponly=True, samesite="strict")

  def _is_token(self, token: str) -> bool:
    return self._token is not None and _equal(token, self._token)


def _equal(first: str, second: str) -> bool:
  """Compares without telling by its time how much is equal."""
  return hmac.compare_digest(first.encode(errors="replace"), second.encode())
