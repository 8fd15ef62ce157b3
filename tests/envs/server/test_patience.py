"""Clients that connect and say nothing, or not all, against uvicorn itself."""

import socket
import threading
import time

import pytest
import uvicorn

from serving.patience import PatientProtocol


class Impatient(PatientProtocol):
    header_seconds = 1.2


async def answer(scope, receive, send):
    """Any request: 200, after a while that is longer than headers may take."""
    if scope["type"] != "http":
        return
    time.sleep(1.4)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(scope="module")
def port():
    server = uvicorn.Server(
        uvicorn.Config(answer, http=Impatient, port=0, lifespan="off", log_level="critical")
    )
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(10)


def ended(port, *pieces):
    """Sends pieces a fifth of a second apart; returns what came before the server closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        for piece in pieces:
            client.sendall(piece)
            time.sleep(0.2)
        found = b""
        while data := client.recv(4096):
            found += data
        return found


@pytest.mark.parametrize(
    "pieces",
    [(), (b"GET / HT",), (b"GET / HTTP/1.1\r\n", b"Host: a\r\n")],
    ids=["nothing", "half a line", "half the headers, in pieces"],
)
def test_who_does_not_send_headers_is_cut_off(port, pieces):
    assert ended(port, *pieces) == b""


def test_who_sends_them_is_answered_however_long_that_takes(port):
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        for _ in range(2):  # the second on the same connection
            client.sendall(request[:10])
            time.sleep(0.2)
            client.sendall(request[10:])
            found = b""
            while not found.endswith(b"\r\n\r\nok"):  # headers and body may come apart
                piece = client.recv(4096)
                assert piece, "closed before it answered"
                found += piece
            assert b"200 OK" in found
            time.sleep(1.4)  # between requests nothing is owed
        client.sendall(request[:10])
        assert client.recv(4096) == b""
