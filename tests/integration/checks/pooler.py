"""Something between client and server that, as a pooler does, makes up the process id that the
client is told.
"""

import select
import socket
import threading
from types import TracebackType
from typing import Self

KEY_DATA = b"K\x00\x00\x00\x0c"
"BackendKeyData: tag and length; the process id follows."


class Pooler:
    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._carriers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in (self._thread, *self._carriers):
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            if select.select([self._listener], [], [], 0.05)[0]:
                client, _ = self._listener.accept()
                carrier = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._carriers.append(carrier)
                carrier.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server:
            self._carry(client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        told = False
        while not self._ended.is_set():
            for source in select.select([client, server], [], [], 0.05)[0]:
                data: bytes = source.recv(65536)
                if not data:
                    return
                if source is server and not told and (at := data.find(KEY_DATA)) >= 0:
                    told = True
                    begin = at + len(KEY_DATA)
                    data = data[:begin] + (4711).to_bytes(4, "big") + data[begin + 4 :]
                (server if source is client else client).sendall(data)
