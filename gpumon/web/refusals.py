"""Answers that are one sentence: what is wrong with a request, and the way on."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import bottle

from gpumon.model import encode
from gpumon.text import clean
from gpumon.web import text
from gpumon.web.address import Address
from gpumon.web.answers import HTML, JSON, answer, wanted
from gpumon.web.links import root_of
from gpumon.web.templates import Templates

MOST_COMPARED = 5000
"""So many names are compared with one that was mistyped."""

_NOTHING = "There is nothing at this address."
_ONLY_READ = "This address can only be read: use GET or HEAD."
_TO_HELP = "/help lists what can be asked."
_TO_HOSTS = "/status.txt and /status.json list all hosts."
"""For readers without links."""


class Refusals:
    """Says why a request brings nothing: as page, JSON or text, whatever the client accepts."""

    def __init__(self, templates: Templates, brand: str) -> None:
        self._templates = templates
        self._brand = brand

    def unknown_host(self, name: str, names: Sequence[str]) -> bottle.HTTPResponse:
        """Answer that no host is called `name`, with those of `names` that are near to it."""
        # In any case of letters, as everywhere else.
        folded = {known.casefold(): known for known in names[:MOST_COMPARED]}
        found = difflib.get_close_matches(name[:64].casefold(), list(folded), n=4, cutoff=0.5)
        near = [folded[one] for one in found]
        return self.sentence(
            404, f"There is no host {clean(name, 80)!r} here.", near=near, way_on=_TO_HOSTS
        )

    def error(self, error: bottle.HTTPError) -> bottle.HTTPResponse:
        """Answer to what Bottle refuses."""
        if error.status_code == 404:
            return self.sentence(404, _NOTHING, way_on=_TO_HELP)
        if error.status_code == 405:
            methods = _methods(error)
            words = _ONLY_READ if "GET" in methods else f"This address takes {methods} alone."
            return self.sentence(405, words, headers={"Allow": methods})
        return self.sentence(error.status_code, "This request could not be answered.")

    def sentence(
        self,
        code: int,
        words: str,
        *,
        near: Sequence[str] = (),
        way_on: str = "",
        headers: dict[str, str] | None = None,
    ) -> bottle.HTTPResponse:
        """Answer with `words`, and with links to the hosts in `near`.

        `way_on` is a sentence for those who get no page with links.
        """
        path = bottle.request.environ["PATH_INFO"]
        kind = wanted(bottle.request.get_header("Accept", ""))
        if kind == JSON or path.endswith(".json"):
            body, kind = encode({"error": f"{words} {way_on}".rstrip(), "near": near}), JSON
        elif kind == HTML:
            body = self._templates.render(
                "message.tpl",
                root=root_of(path),
                address=Address(),
                title=f"{code} - {self._brand}",
                heading=words,
                near=near,
            )
        else:
            also = f"Did you mean {', '.join(near)}?" if near else way_on
            body = f"{text.plain(f'{words} {also}'.rstrip(), 400)}\n".encode("ascii")
        return answer(body, kind, status=code, headers={"Vary": "Accept", **(headers or {})})


def _methods(error: bottle.HTTPError) -> str:
    """Return what an address takes, as Bottle has found it: "GET, HEAD"."""
    named = {part.strip() for part in error.get_header("Allow", "GET").split(",")}
    return ", ".join(sorted(named | ({"HEAD"} if "GET" in named else set())))
