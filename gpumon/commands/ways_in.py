"""Where readings come in by themselves, as the configuration wants it; it may change later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.sources.pushed import PushInbox
from gpumon.config import Config, WebConfig
from gpumon.http.push_tokens import PushTokens
from gpumon.web.entrances import Entrance
from gpumon.web.push import PushDesk
from gpumon.web.refused_pushes import Refusals
from gpumon.web.vesta import VestaDesk


class WaysIn:
    """The entrances of a server: none, unless it is configured."""

    def __init__(self, config: Config, fleet: Fleet) -> None:
        """Raises SetupError for a token file that can't be used."""
        refusals = Refusals()
        self._inbox = PushInbox(fleet, accept_new=config.web.push_accept_new)
        self._tokens = load_push_tokens(config.web)
        self.entrances: list[Entrance] = []
        if "web.push_token_file" in self._tokens:
            tokens = self._tokens["web.push_token_file"]
            self.entrances.append(PushDesk(self._inbox, tokens, refusals))
        if "web.vesta_token_file" in self._tokens:
            tokens = self._tokens["web.vesta_token_file"]
            self.entrances.append(VestaDesk(self._inbox, tokens, refusals))

    def prepared(self, config: Config) -> Callable[[], None]:
        """Read the token files of another configuration; return what puts them to use.

        An entrance that it would close or open, which takes a restart, stays as it is. Raises
        SetupError.
        """
        loaded = load_push_tokens(config.web)

        def commit() -> None:
            self._inbox.accept_new = config.web.push_accept_new
            for key in self._tokens.keys() & loaded.keys():
                self._tokens[key].take_over(loaded[key])

        return commit


def token_files(web: WebConfig) -> dict[str, Path]:
    """Return the files that open an entrance, by the names of their settings."""
    files = {
        "web.push_token_file": web.push_token_file,
        "web.vesta_token_file": web.vesta_token_file,
    }
    return {key: path for key, path in files.items() if path is not None}


def load_push_tokens(web: WebConfig) -> dict[str, PushTokens]:
    """Return the tokens of those files. Raises SetupError."""
    return {key: PushTokens.load(path, key) for key, path in token_files(web).items()}
