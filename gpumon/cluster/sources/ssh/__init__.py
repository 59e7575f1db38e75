"""Hosts without an agent: nvidia-smi and ps over SSH, or a key that prints `gpumon snapshot`.

login.py     the server's key and the keys of the hosts, read once
connection.py  one connection to one host, and one command at a time on it
script.py    what runs on the host, and its output taken apart
columns.py   the columns of nvidia-smi, and what each means to the model
table.py     the CSV of nvidia-smi as rows
processes.py   the list of processes with what ps knows of them
snapshot.py  all of it together
failures.py  what can go wrong, in words
source.py    the source
"""
