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

_ERRORS = {
    404: "There is nothing at this address.",
    405: "This address can only be read: use GET or HEAD.",
}


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
        return self.sentence(404, f"There is no host {clean(name, 80)!r} here.", near=near)

    def error(self, error: bottle.HTTPError) -> bottle.HTTPResponse:
        """Answer to what Bottle refuses."""
        words = _ERRORS.get(error.status_code, "This request could not be answered.")
        headers = {"Allow": "GET, HEAD"} if error.status_code == 405 else {}
        return self.sentence(error.status_code, words, headers=headers)

    def sentence(
        self,
        code: int,
        words: str,
        *,
        near: Sequence[str] = (),
        headers: dict[str, str] | None = None,
    ) -> bottle.HTTPResponse:
        """Answer with `words`, and with links to the hosts in `near`."""
        path = bottle.request.environ["PATH_INFO"]
        kind = wanted(bottle.request.get_header("Accept", ""))
        if kind == JSON or path.endswith(".json"):
            body, kind = encode({"error": words, "near": near}), JSON
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
            also = f" Did you mean {', '.join(near)}?" if near else ""
            body = f"{text.plain(words + also, 400)}\n".encode("ascii")
        return answer(body, kind, status=code, headers={"Vary": "Accept", **(headers or {})})
