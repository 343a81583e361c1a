"""The API's own page, from its OpenAPI description; nothing is fetched from elsewhere."""

import json
from collections.abc import Mapping

from realm_jax.inspector.markup import Markup, document, element, join

_EXAMPLE = """curl -s http://127.0.0.1:8080/api/fill_mask -H 'content-type: application/json' \\
  -d '{"texts": ["The [MASK] is the currency of the United Kingdom."]}'"""


def rendered(schema: Mapping) -> str:
  """Returns the page of an OpenAPI schema."""
  sections = [
    _route(path, method, operation, schema)
    for path, operations in schema["paths"].items()
    for method, operation in operations.items()
  ]
  return document(
    title=f"{schema['info']['title']} — HTTP API",
    head=join(
      element("link", {"rel": "stylesheet", "href": "/static/inspector.css"}),
      element("link", {"rel": "icon", "href": "/static/icon.svg", "type": "image/svg+xml"}),
    ),
    body=element(
      "body",
      None,
      element(
        "header",
        {"class": "masthead"},
        element(
          "a", {"href": "/", "class": "mark-name"}, "REALM ", element("span", None, "HTTP API")
        ),
        element("a", {"href": "/openapi.json"}, "openapi.json"),
      ),
      element("main", {"class": "document"}, element("pre", None, _EXAMPLE), *sections),
    ),
  )


def _route(path: str, method: str, operation: Mapping, schema: Mapping) -> Markup:
  return element(
    "section",
    None,
    element(
      "h2",
      None,
      element("span", {"class": "method"}, method.upper()),
      " ",
      element("code", None, path),
    ),
    element("p", None, operation.get("summary", "")),
    _body(operation, schema),
  )


def _body(operation: Mapping, schema: Mapping) -> Markup | None:
  content = operation.get("requestBody", {}).get("content", {}).get("application/json")
  if content is None:
    return None
  name = content["schema"]["$ref"].rpartition("/")[2]
  fields = schema["components"]["schemas"][name]
  shown = {
    field: {key: value for key, value in what.items() if key != "title"}
    for field, what in fields["properties"].items()
  }
  return join(
    element("p", {"class": "note"}, fields.get("description", "")),
    element("pre", None, json.dumps(shown, indent=2)),
  )
