"""What the page costs beside other web monitors: an invented cluster, servers, readers."""
