"""On the server: polls the hosts, keeps the last good answer of each, names the states."""
