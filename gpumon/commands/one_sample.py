"""One sample of this host for a person who waits for it."""

from __future__ import annotations

import logging

from gpumon.agent.supervisor import take_one
from gpumon.model import HostSnapshot


def one_sample() -> HostSnapshot:
    """Return one sample of this host. Raises CollectError.

    What the sampler has to say stands in the snapshot or in the error: once is enough, so its log
    stays silent meanwhile.
    """
    logging.disable(logging.WARNING)
    try:
        return take_one()
    finally:
        logging.disable(logging.NOTSET)
