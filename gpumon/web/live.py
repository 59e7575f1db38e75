"""Live data as answers: seen by the reader's tier, rendered once per revision, with an ETag."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable
from typing import NamedTuple

import bottle
from msgspec import structs

from gpumon.cluster.order import ordered
from gpumon.cluster.query import select
from gpumon.cluster.status import ClusterStatus
from gpumon.cluster.visible import Sight, sight_of, visible, visible_detail
from gpumon.config import Config
from gpumon.model import HostSnapshot
from gpumon.web.address import PARAMETERS, Address, read_address
from gpumon.web.answers import PRIVATE, REVALIDATE, validated
from gpumon.web.reader import Reader, Readers
from gpumon.web.renderings import MOST, PerRevision, Rendering

MOST_CHOICES = 32
"""So many renderings of a revision with a filter or another choice are kept, apart from the
others, so that nobody who tries thousands of filters can drive out the common pages."""

HIDDEN_NAMES = "User names are hidden from readers who are not logged in."


class Seen(NamedTuple):
    """The cluster as one reader sees it, and what the reader asked for."""

    status: ClusterStatus
    sight: Sight
    personal: bool
    """Whether the reader has a name, so that own rows can be marked."""
    address: Address

    def chosen(self) -> ClusterStatus:
        """Return the status over the hosts that the address asks for, in its order."""
        return ordered(select(self.status, self.address.query), self.address.order)

    def said(self) -> ClusterStatus:
        """Return what was chosen, with all remarks in it: for text and JSON."""
        chosen = self.chosen()
        remarks = self.remarks(chosen)
        if self.address.page > 1:
            remarks.append(f"page={self.address.page} changes nothing here: all is on one page.")
        return structs.replace(chosen, query_remarks=remarks)

    def remarks(self, chosen: ClusterStatus) -> list[str]:
        """Return what could not be done of what the address asks for, each a sentence."""
        said = [*chosen.query_remarks, *self.address.remarks]
        if any(word[0] == "@" and self.hides(word[1:]) for word in self.address.query.words):
            said.append(HIDDEN_NAMES)
        return said

    def hides(self, user: str) -> bool:
        """Return whether `user` may well hold something that is shown under another name."""
        if self.sight.names == "names":
            return False
        return all(shown.user != user for shown in self.status.users)


class Live:
    """Makes answers of the cluster's current status. Any thread may ask."""

    def __init__(
        self,
        status: Callable[[], ClusterStatus],
        detail: Callable[[str], HostSnapshot | None],
        config: Config,
    ) -> None:
        self.status = status
        """The whole cluster: for decisions, never to be shown."""
        self._detail = detail
        self._config = config
        self._readers = Readers(config)
        # Pseudonyms hold as long as the server runs; nobody can work out whose they are.
        self._key = secrets.token_bytes(16)
        self._seen: PerRevision[ClusterStatus] = PerRevision(4)
        self._common: PerRevision[Rendering] = PerRevision(MOST)
        self._choices: PerRevision[Rendering] = PerRevision(MOST_CHOICES)

    def reader(self) -> Reader:
        """Return who sent the current request."""
        return self._readers.reader(bottle.request.environ)

    def detail(self, host: str, sight: Sight) -> HostSnapshot | None:
        """Return what of the last reading of a host a reader sees; None: there is none."""
        detail = self._detail(host)
        return None if detail is None else visible_detail(detail, sight, self._key)

    def headers(self, vary: str = "Accept-Encoding") -> dict[str, str]:
        """Return the header Vary, for an answer that also depends on who reads."""
        return {"Vary": vary if self._readers.header is None else f"{vary}, {self._readers.header}"}

    def cache(self) -> str:
        """Return the Cache-Control of live data."""
        return REVALIDATE if self._readers.header is None else PRIVATE

    def answer(
        self,
        form: Hashable,
        content_type: str,
        render: Callable[[Seen], bytes],
        vary: str = "Accept-Encoding",
    ) -> bottle.HTTPResponse:
        """Answer with live data in one form: from the cache, or as 304.

        `form` names what is rendered beside the parameters of the address, which count by
        themselves. What one tier sees is never kept, or called unchanged, for another.
        """
        status, reader, address = self.status(), self.reader(), current_address()
        sight = sight_of(reader.tier, self._config)
        personal = reader.name is not None

        def make() -> Rendering:
            seen = Seen(self._as_seen(status, sight), sight, personal, address)
            return Rendering(render(seen), content_type)

        kept = self._common if _is_common(address) else self._choices
        key = (form, content_type, sight, personal, address)
        rendering = kept.get(status.revision, key, make)
        kind = content_type.partition(";")[0].rpartition("/")[2]
        variant = sight.tag + ("m" if personal else "") + ("r" if address.refresh else "")
        headers = self.headers(vary)
        if address.refresh is not None:
            headers["Refresh"] = str(address.refresh)
        return validated(
            rendering,
            f"{status.revision}-{kind}" + (f"-{variant}" if variant else ""),
            cache=self.cache(),
            headers=headers,
        )

    def _as_seen(self, status: ClusterStatus, sight: Sight) -> ClusterStatus:
        if sight.names == "names":
            return status
        return self._seen.get(
            status.revision, sight.names, lambda: visible(status, sight, self._key)
        )


def current_address() -> Address:
    """Return the choices in the address of the current request."""
    query = bottle.request.query
    values: dict[str, str] = {}
    remarks = []
    for name in PARAMETERS:
        if name not in query:
            continue
        if len(query.getall(name)) > 1:
            remarks.append(f"{name} was given more than once: only the last counts.")
        value = query.getunicode(name)
        if value is None:
            remarks.append(f"{name} was left out: it can't be read as UTF-8.")
        values[name] = value or ""
    return read_address(values, remarks)


def _is_common(address: Address) -> bool:
    """Return whether many readers share this address: nothing typed, nothing rare."""
    plain = Address(
        view=address.view, colors=address.colors, refresh=None if address.refresh is None else 30
    )
    return address == plain
