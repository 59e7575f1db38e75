"""A small certificate authority for the wire between server and agents: `gpumon certs`.

authority.py  keys and certificates: an authority, hosts' certificates, what stands in them
folder.py     where they lie: an authority's folder, files that are never half there

Needs the library `cryptography` (extra `certs`); agent and server do not.
"""
