"""Asks so many questions at once on one connection, over DoQ or HTTP/3."""

import asyncio
import ssl
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamDataReceived

QUERY = b"\0\0\1\0\0\1\0\0\0\0\0\0\3www\7example\3com\0\0\1\0\1"


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http, self.octets, self.heads, self.ended = None, {}, {}, {}

    def ask(self):
        stream = self._quic.get_next_available_stream_id()
        self.octets[stream] = b""
        self.ended[stream] = asyncio.get_running_loop().create_future()
        if self.http is None:
            self._quic.send_stream_data(stream, len(QUERY).to_bytes(2, "big") + QUERY, True)
        else:
            head = {":method": "POST", ":scheme": "https", ":authority": "ns1.example.com"}
            head |= {":path": "/dns-query", "content-type": "application/dns-message"}
            self.http.send_headers(stream, [(k.encode(), v.encode()) for k, v in head.items()])
            self.http.send_data(stream, QUERY, True)
        self.transmit()
        return stream

    def take(self, stream, octets, end):
        if stream in self.ended:
            self.octets[stream] += octets
            if end and not self.ended[stream].done():
                self.ended[stream].set_result(None)

    def quic_event_received(self, event):
        if self.http is None:
            if isinstance(event, StreamDataReceived):
                self.take(event.stream_id, event.data, event.end_stream)
            return
        for part in self.http.handle_event(event):
            if isinstance(part, HeadersReceived):
                self.heads[part.stream_id] = dict(part.headers)
                self.take(part.stream_id, b"", part.stream_ended)
            elif isinstance(part, DataReceived):
                self.take(part.stream_id, part.data, part.stream_ended)


async def main(port, alpn, count):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=[alpn], verify_mode=ssl.CERT_NONE)
    configuration.server_name = "ns1.example.com"
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
        if alpn == "h3":
            client.http = H3Connection(client._quic)
        streams = [client.ask() for _ in range(count)]
        await asyncio.wait_for(asyncio.gather(*client.ended.values()), 10)
        good = 0
        for stream in streams:
            reply = client.octets[stream]
            if alpn == "h3":
                assert client.heads[stream][b":status"] == b"200", client.heads[stream]
            else:
                assert int.from_bytes(reply[:2], "big") == len(reply) - 2
                reply = reply[2:]
            good += len(reply) == len(QUERY) and reply[2] & 0x80 != 0
        print(good, "answers")


asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
