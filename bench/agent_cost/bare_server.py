"""The floor of answering: a bare asyncio server that gives the same bytes to whatever is asked.

python bare_server.py PORT BYTES
"""

import asyncio
import sys


class Bare(asyncio.Protocol):
    """Answers when a request's last bytes have come; each request comes whole here."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self.answer)


async def main(port: int, size: int) -> None:
    Bare.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", port)
    await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
