"""What a page leads to."""

from __future__ import annotations

import html
import re
from urllib.parse import urljoin

from e2e.e2e_cluster import Cluster


def assert_links_work(cluster: Cluster) -> None:
    """The page leads to nothing outside its path, and everything that it needs is there."""
    page = cluster.curl("/", "--header", "Accept: text/html").stdout
    links = set(re.findall(r"""(?:href|src|action)="([^"#]*)""", page))
    assert len(links) > 5, page
    for link in map(html.unescape, links):
        target = urljoin(cluster.path, link)
        assert target.startswith(cluster.path), link
        asked = "/" + target.removeprefix(cluster.path)
        done = cluster.curl(asked, "-o", "/dev/null", "-w", "%{http_code}")
        assert done.stdout == "200", link
