"""Outbound requests reach public https targets and permitted private ones only."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from uuid import UUID

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from daybook.eventlog.errors import SetupError
from daybook.processors.outbound.http import NotPublicError, Outbound
from daybook.processors.outbound.ssrf_guard import NOTHING_PRIVATE, Private, is_public, read_private
from daybook.processors.qstash.client import CompletionMessage, PublishError, QStash
from daybook.processors.upstreams.client import FeedClient, FeedError
from daybook.processors.upstreams.feeds import Feed
from daybook.processors.webhooks.webhook import SEND_SECONDS_MAX, DeliveryError, Webhook
from tests.support.running.nearby import NEARBY, listening
from tests.support.running.processes import ROOT

pytestmark = pytest.mark.anyio

NAME = "pos.example"
PUBLIC = "93.184.215.14"
HERE = "127.0.0.1"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
# Bytes that a server can write to a client that reads nothing: the buffers of both ends.
BUFFERED_BYTES_MAX = 16 * 1024 * 1024
COMPLETION = CompletionMessage(order_id=UUID(int=1), bot_id=UUID(int=2), claim_id=UUID(int=3))

INSIDE = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.0.0.7",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "168.63.129.16",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "100::1",
    # IPv4 addresses in disguise: mapped, compatible, NAT64 of both kinds, 6to4, Teredo.
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
]
OUTSIDE = ["93.184.215.14", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111"]
OUTSIDE += ["::ffff:8.8.8.8", "64:ff9b::808:808"]


class Door:
    """A server on 127.0.0.1 that records connections and sends a chosen answer."""

    def __init__(self) -> None:
        self.port = 0
        self.heads: list[str] = []
        self.connections = 0
        self.names: list[str | None] = []
        self.sent_bytes = 0
        self.answer: Callable[[asyncio.StreamWriter], Awaitable[None]] = self._ok

    async def _ok(self, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head.decode())
                length = re.search(rb"content-length: (\d+)", head.lower())
                await reader.readexactly(int(length[1]) if length else 0)
                await self.answer(writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def drip(self, writer: asyncio.StreamWriter, text: bytes) -> None:
        for byte in text:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    async def pour(self, writer: asyncio.StreamWriter, head: bytes, piece: bytes) -> None:
        """Endless, until the client disconnects."""
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            self.sent_bytes += len(piece)


@asynccontextmanager
async def open_door(tls: ssl.SSLContext | None = None) -> AsyncIterator[Door]:
    door = Door()
    if tls is not None:
        tls.sni_callback = lambda _object, name, _context: door.names.append(name)
    async with listening(door.serve, tls=tls) as door.port:
        yield door


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with open_door() as opened:
        yield opened


class Names:
    """A name server of our own: each question has the next answer, and the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = [*answers]
        self.asked: list[str] = []

    async def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def get(outbound: Outbound, url: str) -> httpx2.Response:
    async with outbound.client(seconds_max=2, connect_seconds_max=1) as client:
        return await client.get(url)


async def send(url: str, outbound: Outbound, seconds_max: float = 2) -> None:
    webhook = Webhook(url, [b"0" * 24], outbound=outbound, seconds_max=seconds_max)
    async with aclosing(webhook):
        await webhook.send(UUID(int=1), datetime.now(UTC), b"{}")


async def poll(url: str, outbound: Outbound) -> None:
    async with aclosing(FeedClient(outbound, page_seconds_max=2)) as client:
        await client.page(Feed(url=url), None)


async def publish(url: str, outbound: Outbound) -> None:
    qstash = QStash(base_url=url, token="t", callback_url="https://x.example", outbound=outbound)
    async with aclosing(qstash):
        await qstash.publish(COMPLETION, delay_seconds=1)


@pytest.mark.parametrize("text", INSIDE)
def test_private_addresses_are_not_public_in_any_notation(text: str) -> None:  # SEC-13
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", OUTSIDE)
def test_global_addresses_are_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("call", [send, poll, publish])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_private_targets_are_called_only_if_the_operator_permits_them(
    door: Door, call: Callable[[str, Outbound], Awaitable[None]], scheme: str
) -> None:
    # SEC-13
    with pytest.raises((DeliveryError, FeedError, PublishError)) as refused:
        await call(f"{scheme}://{HERE}:{door.port}", Outbound())
    assert "add its host to DAYBOOK_OUTBOUND_PRIVATE" in str(refused.value)
    assert HERE not in str(refused.value)
    assert door.connections == 0


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]"]
)
async def test_another_spelling_does_not_lead_inside(door: Door, host: str) -> None:  # SEC-13
    with pytest.raises(NotPublicError):
        await get(Outbound(), f"https://{host}:{door.port}/")
    assert door.connections == 0


async def test_a_name_that_leads_inside_too_is_not_called(door: Door) -> None:  # SEC-13
    both = Outbound(resolve=Names([PUBLIC, HERE]))
    with pytest.raises(NotPublicError):
        await get(both, f"https://{NAME}:{door.port}/")
    assert door.connections == 0


async def test_a_name_is_resolved_once_and_the_checked_address_is_called(door: Door) -> None:
    # SEC-13: a name that answers differently the second time gains nothing
    names = Names([HERE], ["127.0.0.2"])
    near = Outbound(read_private(HERE), resolve=names)

    answer = await get(near, f"http://{NAME}:{door.port}/")

    assert answer.status_code == 200
    assert names.asked == [NAME]
    assert f"host: {NAME}:{door.port}" in door.heads[0].lower()


async def test_the_first_address_that_answers_is_taken(door: Door) -> None:
    names = Names(["127.0.0.3", HERE])
    near = Outbound(read_private("127.0.0.0/8"), resolve=names)

    assert (await get(near, f"http://{NAME}:{door.port}/")).status_code == 200


async def test_public_targets_are_called_by_https_only() -> None:  # SEC-13
    with pytest.raises(NotPublicError):
        await get(Outbound(resolve=Names([PUBLIC])), f"http://{NAME}/")


async def test_a_name_without_an_address_cannot_be_reached() -> None:
    async def nothing(_host: str, _port: int) -> Sequence[str]:
        raise OSError("no such name")

    with pytest.raises(httpx2.ConnectError):
        await get(Outbound(resolve=nothing), f"https://{NAME}/")


def certificate(tmp_path: Path, name: str) -> Path:
    """Signs itself, and is good for one name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    began = datetime.now(UTC) - timedelta(hours=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(began)
        .not_valid_after(began + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path / "certificate.pem"
    path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(("name", "is_taken"), [(NAME, True), ("other.example", False)])
async def test_the_certificate_must_be_of_the_name_not_of_the_address(
    tmp_path: Path, name: str, is_taken: bool
) -> None:
    # SEC-13
    path = certificate(tmp_path, name)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(path)
    ours = ssl.create_default_context(cafile=str(path))
    async with open_door(theirs) as door:
        near = Outbound(read_private(HERE), resolve=Names([HERE]), tls=ours)
        url = f"https://{NAME}:{door.port}/"
        if is_taken:
            assert (await get(near, url)).status_code == 200
        else:
            with pytest.raises(httpx2.ConnectError, match=r"(?i)certificate"):
                await get(near, url)
        assert door.names == [NAME]


async def test_an_untrusted_certificate_is_refused(tmp_path: Path) -> None:  # SEC-13
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(certificate(tmp_path, NAME))
    async with open_door(theirs) as door:
        near = Outbound(read_private(HERE), resolve=Names([HERE]))
        with pytest.raises(httpx2.ConnectError, match=r"(?i)certificate"):
            await get(near, f"https://{NAME}:{door.port}/")
        assert door.heads == []


@pytest.mark.parametrize("call", [send, poll, publish])
async def test_no_redirect_is_followed(
    door: Door, call: Callable[[str, Outbound], Awaitable[None]]
) -> None:
    # SEC-13
    async def elsewhere(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 307 Go\r\nLocation: http://{HERE}:{door.port}/elsewhere\r\n"
        writer.write(f"{head}Content-Length: 0\r\n\r\n".encode())

    door.answer = elsewhere
    with pytest.raises((DeliveryError, FeedError, PublishError), match="answered 307"):
        await call(f"http://{HERE}:{door.port}", NEARBY)
    assert len(door.heads) == 1


async def test_a_webhook_whose_answer_drips_is_given_up_as_a_whole(door: Door) -> None:  # SEC-13
    door.answer = lambda writer: door.drip(writer, b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1000)
    began = monotonic()

    with pytest.raises(DeliveryError, match=r"no response in 0\.5 s") as refused:
        await send(f"http://{HERE}:{door.port}", NEARBY, seconds_max=0.5)

    assert refused.value.retryable
    assert monotonic() - began < 2
    assert SEND_SECONDS_MAX <= 10


async def test_of_an_answer_to_a_webhook_only_the_head_is_read(door: Door) -> None:
    # SEC-13: an answer without end costs neither time nor memory
    door.answer = lambda writer: door.pour(
        writer, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n", b"x" * 65_536
    )
    began = monotonic()

    await send(f"http://{HERE}:{door.port}", NEARBY)

    assert monotonic() - began < 1
    assert door.sent_bytes < BUFFERED_BYTES_MAX


async def test_a_head_without_end_is_not_waited_for(door: Door) -> None:  # SEC-13
    door.answer = lambda writer: door.pour(writer, b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 10_000)

    with pytest.raises(DeliveryError, match="RemoteProtocolError"):
        await send(f"http://{HERE}:{door.port}", NEARBY)

    assert door.sent_bytes < BUFFERED_BYTES_MAX


def test_there_is_no_other_way_out() -> None:
    """All outgoing requests use the client of one module."""  # SEC-13
    made = re.compile(r"httpx2\.(?:Async)?Client\(|urlopen|import requests|http\.client")
    makers = {
        path.relative_to(ROOT).as_posix()
        for folder in ("api", "processors", "projections", "eventlog", "domain")
        for path in (ROOT / folder).rglob("*.py")
        if made.search(path.read_text())
    }
    assert makers == {"processors/outbound/http.py"}


@pytest.mark.parametrize(
    ("text", "private"),
    [
        (None, NOTHING_PRIVATE),
        ("", NOTHING_PRIVATE),
        ("POS.lan.", Private(frozenset({"pos.lan"}))),
    ],
)
def test_hosts_and_networks_are_parsed_in_any_common_notation(
    text: str | None, private: Private
) -> None:
    assert read_private(text) == private


def test_a_host_or_a_network_may_be_private_and_others_stay_shut() -> None:
    private = read_private("pos.lan, 192.168.0.0/16, ::1")

    assert private.permits("Pos.LAN", ip_address("10.0.0.1"))
    assert private.permits("printer", ip_address("192.168.7.7"))
    assert private.permits("printer", ip_address("::ffff:192.168.7.7"))
    assert not private.permits("printer", ip_address("10.0.0.1"))
    assert not private.permits("evil.pos.lan", ip_address("169.254.169.254"))


@pytest.mark.parametrize(
    "text", ["http://pos.lan", "pos.lan:80", "10.0.0.1/8", "a b", "10.0.0.0/99"]
)
def test_a_value_that_is_neither_host_nor_network_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(SetupError, match="DAYBOOK_OUTBOUND_PRIVATE must be hosts and networks"):
        read_private(text)
