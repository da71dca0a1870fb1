"""What callers send is checked, and a refusal names the field, what stands there, and what is allowed."""

import base64
from ipaddress import ip_address

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.addresses import MacAddress
from arpguard.api import requests
from arpguard.api.requests import RequestError
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Reason

ADDRESS = "must be an IP address such as 192.0.2.10"
HOST = "must be a host's address, but "
MAC = "must be a MAC address such as 02:00:00:00:00:aa"
LINK = "must be the name of a network interface, at most 15 bytes"
TIME = "must be a time from 1970 to 9999"
END_OF_TIME = 253402300799


def in_words(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (requests.read_address, "192.0.2.1", ip_address("192.0.2.1")),
        (requests.read_address, "2001:DB8::1", ip_address("2001:db8::1")),
        (requests.read_host, "192.0.2.1", ip_address("192.0.2.1")),
        (requests.read_mac, "02:00:00:00:00:AA", MacAddress.parse("02:00:00:00:00:aa")),
        (requests.read_link, "eth0", "eth0"),
        (requests.read_link, "a" * 15, "a" * 15),
        (requests.read_link, "br-ünï", "br-ünï"),
        (requests.read_link, "", None),
    ],
    ids=in_words,
)
def test_sound_text_is_read(read, text, value):
    assert read("field", text) == value


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (requests.read_address, "", f"field: (empty): {ADDRESS}"),
        (requests.read_address, "192.0.2", f"field: 192.0.2: {ADDRESS}"),
        (requests.read_address, "192.0.2.01", f"field: 192.0.2.01: {ADDRESS}"),
        (requests.read_address, "192.0.2.0/24", f"field: 192.0.2.0/24: {ADDRESS}"),
        (requests.read_address, "fe80::1%eth0", f"field: fe80::1%eth0: {ADDRESS}"),
        (requests.read_address, "a\nb", f"field: 'a\\nb'...: {ADDRESS}"),
        (requests.read_address, "é" * 61, "field: '" + r"\xe9" * 57 + f"'...: {ADDRESS}"),
        (requests.read_host, "fe80::1", f"field: fe80::1: {HOST}is a link-local address"),
        (requests.read_host, "ff02::1", f"field: ff02::1: {HOST}is a multicast address"),
        (requests.read_host, "::ffff:192.0.2.1", f"field: ::ffff:192.0.2.1: {HOST}is an IPv4 address in IPv6 form"),
        (requests.read_host, "224.0.0.1", f"field: 224.0.0.1: {HOST}is a multicast address"),
        (requests.read_host, "127.0.0.1", f"field: 127.0.0.1: {HOST}is a loopback address"),
        (requests.read_host, "0.0.0.0", f"field: 0.0.0.0: {HOST}is the unspecified address"),
        (requests.read_host, "255.255.255.255", f"field: 255.255.255.255: {HOST}is the broadcast address"),
        (requests.read_host, "169.254.1.1", f"field: 169.254.1.1: {HOST}is a link-local address"),
        (requests.read_mac, "02:00:00:00:00", f"field: 02:00:00:00:00: {MAC}"),
        (requests.read_mac, "02-00-00-00-00-aa", f"field: 02-00-00-00-00-aa: {MAC}"),
        (requests.read_link, "a" * 16, f"field: {'a' * 16}: {LINK}"),
        (requests.read_link, "ü" * 8, f"field: {'ü' * 8}: {LINK}"),
        (requests.read_link, "eth 0", f"field: eth 0: {LINK}"),
        (requests.read_link, "a/b", f"field: a/b: {LINK}"),
        (requests.read_link, "a\0", f"field: 'a\\x00'...: {LINK}"),
    ],
    ids=in_words,
)
def test_wrong_text_is_refused(read, text, message):
    with pytest.raises(RequestError) as caught:
        read("field", text)

    assert (caught.value.code, str(caught.value)) == (grpc.StatusCode.INVALID_ARGUMENT, message)


@pytest.mark.parametrize("text", ["x" * 60_000, "fe80::1%" + "x" * 60_000, "\0" * 60_000])
def test_refusal_stays_short_however_long_the_text_was(text):
    with pytest.raises(RequestError) as caught:
        requests.read_address("address", text)

    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(("number", "member"), [(0, None), (23, Reason.CONFLICT), (max(Reason), max(Reason))])
def test_choice_is_the_member_with_the_number(number, member):
    assert requests.read_choice("reason", number, Reason) is member


@pytest.mark.parametrize("number", [-1, max(Reason) + 1, 2**31 - 1, -(2**31)])
def test_number_of_no_member_is_refused_with_the_names(number):
    with pytest.raises(RequestError, match=f"^reason: {number}: must be one of NOT_GUARDED, .*, {max(Reason).name}$"):
        requests.read_choice("reason", number, Reason)


@pytest.mark.parametrize(
    ("seconds", "nanos", "value"),
    [(0, 0, 0), (1, 500, 1_000_000_500), (END_OF_TIME, 999_999_999, END_OF_TIME * 10**9 + 999_999_999)],
)
def test_time_is_nanoseconds(seconds, nanos, value):
    assert requests.read_time("since", Timestamp(seconds=seconds, nanos=nanos)) == value


@pytest.mark.parametrize(
    ("seconds", "nanos"), [(-1, 0), (END_OF_TIME + 1, 0), (0, -1), (0, 10**9), (2**63 - 1, 0), (-(2**63), -(2**31))]
)
def test_time_outside_of_1970_to_9999_is_refused(seconds, nanos):
    with pytest.raises(RequestError, match=f"^since: {seconds} s, {nanos} ns: {TIME}$"):
        requests.read_time("since", Timestamp(seconds=seconds, nanos=nanos))


# ---- pages -------------------------------------------------------------------------------------------------------

ASKED = pb.ListVipsRequest(link="eth0")
TOKEN = requests.read_cursor(ASKED, 3).token(2, 4, 7)


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(("asked", "size"), [(0, 100), (1, 1), (1000, 1000), (1001, 1000), (5000, 1000)])
def test_page_size_is_coerced(asked, size):
    assert requests.read_cursor(pb.ListVipsRequest(page_size=asked), 3).size == size


@pytest.mark.parametrize("asked", [-1, -(2**31)])
def test_negative_page_size_is_refused(asked):
    with pytest.raises(RequestError, match=rf"^page_size: {asked}: must be 0 to 1000 \(0 means 100\)$"):
        requests.read_cursor(pb.ListVipsRequest(page_size=asked), 3)


def test_token_leads_on_after_its_position_whatever_the_page_size():
    page = requests.read_cursor(pb.ListVipsRequest(link="eth0", page_token=TOKEN, page_size=7), 3)

    assert (page.after, page.size) == ((2, 4, 7), 7)


def test_token_is_fit_for_an_url():
    assert set(TOKEN) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@pytest.mark.parametrize(
    ("request_", "numbers"),
    [
        pytest.param(pb.ListVipsRequest(page_token=TOKEN), 3, id="another filter"),
        pytest.param(pb.ListVipsRequest(link="eth0", kind=1, page_token=TOKEN), 3, id="a filter more"),
        pytest.param(pb.ListConflictsRequest(link="eth0", page_token=TOKEN), 3, id="another method"),
        pytest.param(pb.ListVipsRequest(link="eth0", page_token=TOKEN), 1, id="another kind of position"),
        pytest.param(pb.ListVipsRequest(link="eth0", page_token=TOKEN[:-3]), 3, id="cut off"),
        pytest.param(pb.ListVipsRequest(link="eth0", page_token="!"), 3, id="no base64"),
        pytest.param(pb.ListVipsRequest(link="eth0", page_token="é"), 3, id="no ASCII"),
        pytest.param(pb.ListVipsRequest(link="eth0", page_token=encoded("a.b.c.d")), 3, id="no numbers"),
        pytest.param(pb.ListVipsRequest(link="eth0", page_token=encoded("9" * 5000)), 3, id="too many digits"),
        pytest.param(pb.ListVipsRequest(link="eth0", page_token=encoded("\xff")), 3, id="no ASCII inside"),
        pytest.param(pb.ListVipsRequest(link="eth0", page_token="x" * 60_000), 3, id="long"),
    ],
)
def test_token_of_another_list_is_refused(request_, numbers):
    with pytest.raises(RequestError) as caught:
        requests.read_cursor(request_, numbers)

    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert str(caught.value).startswith("page_token: ")
    assert str(caught.value).endswith(
        ": must be the next_page_token of the previous page for the same filter, or empty for the first page"
    )
