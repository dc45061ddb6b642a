"""The page in a browser: its numbers, its keys, its form, its looks, and its silence towards other hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from tests.admin.fake_api import ENTITIES, HOSTILE, NOW_MS, STATUS, FakeApi, calm, entity, served
from tests.admin.stage import Stage, play_with, produce
from tests.kfake.cluster import HOST
from tests.kfake.in_trio import Connection
from tools.pictures.browser import CHROMIUM, Browser, browser
from weir.proxy.control.snapshots.records import QuotaChange
from weir.quotas.table.quota_kind import BYTE_RATES, QuotaKey

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium in the PATH"),
]

ROWS = "[...document.querySelectorAll('#list tbody tr')]"
TOKEN = "0123456789abcdef-token"  # noqa: S105  # of these tests


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def url(api: FakeApi, tab: Browser) -> Iterator[str]:
    with served(api) as address:
        yield address
        tab.leave()


def shown(tab: Browser, url: str, **window: Any) -> None:
    tab.open(url, **window)
    tab.until("document.querySelector('#live').textContent.startsWith('live')")
    tab.until(f"{ROWS}.length")


def chosen(tab: Browser, name: str) -> None:
    tab.click(f"#tab-{name}")
    tab.until(f"document.querySelector('#list').className === '{name}' && {ROWS}.length")


def exact(tab: Browser, key: str, column: str) -> float:
    cell = f'document.querySelector(\'tr[data-key="{key}"] td[data-label="{column}"]\')'
    return float(tab.read(f"{cell}.dataset.exact"))


def test_all_numbers_of_the_page_equal_those_of_the_api(tab: Browser, api: FakeApi, url: str) -> None:
    shown(tab, url)
    for name, value in msgspec.to_builtins(STATUS.totals).items():
        assert float(tab.read(f"document.querySelector('#total-{name} dd').dataset.exact")) == value
    for each in ENTITIES:
        for column, value in (("usage", each.usage), ("rate", each.rate), ("limit", each.limit)):
            assert exact(tab, each.id, column) == value
        assert exact(tab, each.id, "connections") == each.connections
    chosen(tab, "connections")
    for one in api.connections:
        assert exact(tab, str(one.id), "in") == one.in_bytes_per_s
        assert exact(tab, str(one.id), "out") == one.out_bytes_per_s
    chosen(tab, "brokers")
    for broker in api.brokers:
        assert exact(tab, str(broker.node_id), "in") == broker.in_bytes_per_s
        assert exact(tab, str(broker.node_id), "waiting") == broker.throttled_entities
    assert tab.said == []


def test_a_throttled_client_is_one_card_with_its_brokers_and_their_sum(
    tab: Browser, api: FakeApi, url: str
) -> None:
    more = entity("more", broker=7, rate=500_000.0, usage=0.5, client_ids=("web",), connections=1)
    api.entities = (*ENTITIES[:2], more, *ENTITIES[2:])
    shown(tab, url)
    assert tab.read("document.querySelectorAll('#throttled > li').length") == 2
    first = tab.text("#throttled li:first-child")
    for text in ("131 %", "1.31 MB/s", "1.81 MB/s", "broker 2", "broker 7", "5 connections", "etl, web"):
        assert first.count(text) == 1, text
    assert first.index("2 brokers") < first.index("broker 2") < first.index("broker 7")
    assert first.count("1 min 23 s") == 3
    chart = tab.read("document.querySelector('#throttled tr + tr svg').getAttribute('aria-label')")
    assert chart.startswith("last 10 minutes: ")
    assert chart.endswith(", limit 1 MB/s")
    assert "Broker 3 cannot be reached" in tab.text("#problems")
    assert "1 down" in tab.text("#tab-brokers")


def test_the_page_asks_for_nothing_outside_its_base_path(tab: Browser, api: FakeApi) -> None:
    with served(api, base_path="/ops/weir") as url:
        shown(tab, f"{url}/ops/weir/")
        for name in ("brokers", "connections", "shadow", "quotas", "weir"):
            chosen(tab, name)
        assert tab.said == []
        assert all(asked.startswith(f"{url}/ops/weir") for asked in tab.requested)
        assert f"{url}/ops/weir/api/events" in tab.requested
        tab.leave()


def test_hostile_client_ids_stay_text_everywhere(tab: Browser, api: FakeApi, url: str) -> None:
    event = {
        "id": 1,
        "at_ms": NOW_MS,
        "kind": "throttling",
        "quota": "request_percentage",
        "client_id": HOSTILE,
    }
    api.events.append({**event, "user": None, "rate": 26.0, "limit": 25.0, "shadow": False})
    shown(tab, url)
    for name in ("used", "connections", "groups", "events"):
        chosen(tab, name)
        assert HOSTILE in tab.read("document.querySelector('#list').textContent")
    assert HOSTILE in tab.text("#throttled li:nth-child(2)")
    tab.click("#throttled li:nth-child(2) button")
    assert HOSTILE in tab.text("#detail")
    assert tab.read("document.querySelectorAll('script, img').length") == 1
    assert tab.read("document.title") == "(2) Weir weir-1:9092"
    assert tab.said == []


def test_a_throttled_group_leads_to_its_members_and_its_parent(tab: Browser, api: FakeApi, url: str) -> None:
    api.entities = (entity("g", user=None, client_id=None, group="payments"),)
    shown(tab, url)
    tab.click("#throttled button")
    buttons = "[...document.querySelectorAll('#detail-actions button')]"
    assert tab.read(f"{buttons}.map((b) => b.textContent)") == [
        "Its members",
        "End its waits",
        "Change its quota …",
    ]
    tab.click("#detail-actions button")
    tab.until(f"document.querySelector('#list').className === 'groups' && {ROWS}.length")
    members = f"alice, svc-pay-*{HOSTILE}retail"
    assert tab.read("document.querySelector('#list tbody tr').textContent") == f"payments{members}"


def test_a_newly_throttled_client_appears_without_reload_and_leaves_again(
    tab: Browser, api: FakeApi, url: str
) -> None:
    api.entities = ()
    api.status = replaced(throttled=0)
    tab.open(url)
    tab.until("document.querySelector('#throttled-title').textContent === 'Throttled: nobody now'")
    api.entities, api.status = (entity("new"),), replaced(throttled=1)
    tab.until("document.querySelector('#throttled li')")
    assert tab.read("document.title") == "(1) Weir weir-1:9092"
    api.entities, api.status = (), replaced(throttled=0)
    tab.until("!document.querySelector('#throttled li')")
    assert tab.read("document.title") == "Weir weir-1:9092"


def replaced(*, throttled: int) -> Any:
    totals = msgspec.structs.replace(STATUS.totals, throttled_entities=throttled)
    return msgspec.structs.replace(STATUS, totals=totals)


def test_the_page_says_since_when_it_is_stale_asks_less_often_and_recovers(
    tab: Browser, api: FakeApi, url: str
) -> None:
    shown(tab, url)
    api.failing = True
    tab.until("document.body.classList.contains('stale')")
    assert_stale(tab)
    assert "131 %" in tab.text("#throttled"), "the latest numbers stay"
    tab.read("Promise.resolve(window.dispatchEvent(new Event('online')))")
    api.failing = False
    tab.read("window.dispatchEvent(new Event('online'))")
    tab.until("!document.body.classList.contains('stale')")
    assert tab.text("#live").startswith("live, ")


def assert_stale(tab: Browser) -> None:
    assert re.match(r"stale since \d\d:\d\d:\d\d: ", tab.text("#live"))
    assert tab.read("document.title") == "(stale) Weir weir-1:9092"
    assert tab.text("#ready") == "not known"
    assert tab.read("document.querySelectorAll('.pill.good').length") == 0


def test_the_page_is_stale_while_weir_does_not_answer_and_before_its_requests_end(
    tab: Browser, api: FakeApi, url: str
) -> None:
    shown(tab, url)
    api.late |= {"/api/status", "/api/throttled", "/api/brokers", "/api/entities"}
    tab.until("document.body.classList.contains('stale')")
    assert_stale(tab)
    assert tab.text("#live").endswith("Weir does not answer")
    since = tab.read("document.querySelector('#live').textContent.slice(12, 20)")
    assert since < tab.read("new Date().toLocaleTimeString('en-GB')")
    api.late.clear()
    tab.until("!document.body.classList.contains('stale')")
    assert tab.text("#ready") == "ready"


def test_the_page_is_stale_while_it_waits_for_a_token(tab: Browser, api: FakeApi, url: str) -> None:
    shown(tab, url)
    api.private, api.token = True, TOKEN
    tab.read("sessionStorage.setItem('weir-token', 'of the former Weir')")
    tab.until("document.querySelector('#token-dialog').open")
    assert_stale(tab)


def test_the_page_begins_with_shadow_quotas_if_no_quota_is_enforced(
    tab: Browser, api: FakeApi, url: str
) -> None:
    api.status, api.entities = msgspec.structs.replace(STATUS, all_in_shadow=True), ()
    shown(tab, url)
    assert tab.read("document.querySelector('#list').className") == "shadow"
    assert "alice" in tab.text("#list")
    assert "All quotas are in shadow" in tab.text("#throttled-none")
    chosen_by_hand = "document.querySelector('#tab-used').getAttribute('aria-selected') === 'true'"
    tab.click("#tab-used")
    tab.until(chosen_by_hand)
    asked = len(api.requests)
    tab.until(str(asked), lambda _: len(api.requests) >= asked + 8)
    assert tab.read(chosen_by_hand)


def test_keys_search_move_open_and_close(tab: Browser, api: FakeApi, url: str) -> None:
    shown(tab, url)
    focused, first = "document.activeElement.textContent", "user=alice, client-id=etl"
    tab.press("j")
    assert tab.read(focused) == first
    tab.press("j")
    assert HOSTILE in tab.read(focused)
    tab.press("k")
    assert tab.read(focused) == first
    tab.press("Enter")
    tab.until("document.querySelector('#detail').open")
    assert first in tab.text("#detail-title")
    tab.press("Escape")
    tab.until("!document.querySelector('#detail').open")
    assert tab.read(focused) == first, "the focus returns to the row"
    tab.press("/")
    tab.type("carol")
    tab.until(f"{ROWS}.length === 1")
    assert any("q=carol" in asked for asked in api.requests)
    tab.press("Escape")
    tab.until(f"{ROWS}.length === {len(ENTITIES)}")
    tab.press("?")
    assert tab.read("document.querySelector('#help').open") is True
    tab.press("Escape")
    tab.press("2")
    tab.until(f"document.querySelector('#list').className === 'brokers' && {ROWS}.length === 3")


def test_rows_keep_their_places_while_the_focus_is_there_and_are_sorted_after(
    tab: Browser, api: FakeApi, url: str
) -> None:
    api.entities = (calm("a"), calm("b", client_id="x"), calm("c", client_id="y"))
    shown(tab, url)
    keys = f"{ROWS}.map((row) => row.dataset.key).join('')"
    tab.read("document.querySelector('tr[data-key=c] button').focus()")
    api.entities = (calm("d"), calm("c", client_id="y"), calm("b", client_id="x"))
    tab.until(f"{keys} === 'bcd'")
    assert tab.read("document.activeElement.closest('tr').dataset.key") == "c"
    tab.read("document.activeElement.blur()")
    tab.until(f"{keys} === 'dcb'")


def test_a_quota_is_previewed_before_it_can_be_applied_with_the_token(
    tab: Browser, api: FakeApi, url: str
) -> None:
    api.token = TOKEN
    shown(tab, url)
    chosen(tab, "quotas")
    disabled = "document.querySelector('#apply').disabled"
    assert tab.read(disabled) is True
    tab.read("document.querySelector('#name-user').focus()")
    tab.type("alice")
    tab.read("document.querySelector('#quota-value').focus()")
    tab.type("1.5 MB")
    tab.read("document.querySelector('#quota-mode').value = 'shadow'")
    tab.read("document.querySelector('#quota-until').value = 'never'")
    assert tab.text("#quota-number") == "= 1.5 MB/s"
    tab.press("Enter")
    tab.until("document.querySelectorAll('#previewed li').length")
    assert "at least 3 min 4 s" in tab.text("#previewed")
    assert "what exists now; throttled at least" in tab.text("#previewed")
    assert tab.read(disabled) is False
    wanted = QuotaChange(
        entity={"user": "alice"}, ops={QuotaKey.PRODUCER_BYTE_RATE: 1_500_000.0}, mode="shadow", until="never"
    )
    assert api.bodies == [wanted]
    tab.type("0")
    assert tab.read(disabled) is True, "a changed form needs another preview"
    tab.press("Enter")
    tab.until(
        "!document.querySelector('#apply').disabled || document.querySelector('#change-said').className"
    )
    tab.read("document.querySelector('#quota-value').value = ''")
    tab.read("document.querySelector('#quota-value').focus()")
    tab.type("1500000")
    tab.press("Enter")
    tab.until(f"!{disabled}")
    tab.click("#apply")
    tab.until("document.querySelector('#token-dialog').open")
    tab.type(TOKEN)
    tab.press("Enter")
    tab.until("document.querySelector('#change-said').textContent === 'Applied.'")
    assert api.bodies[-1] == wanted
    tab.until(f"{ROWS}.some((row) => row.dataset.key === JSON.stringify({{ user: 'alice' }}))")
    assert tab.read("Object.keys(localStorage).length + document.cookie.length") == 0
    assert tab.read("sessionStorage.length") == 1


def test_a_first_end_is_given_to_all_quotas_of_an_entry(tab: Browser, api: FakeApi, url: str) -> None:
    shown(tab, url)
    chosen(tab, "quotas")
    tab.read("document.querySelector('#choice-user').value = 'default'")
    tab.read("document.querySelector('#quota-until').value = '2999-01-01T00:00:00Z'")
    tab.read("document.querySelector('#quota-value').focus()")
    tab.type("3 MB")
    tab.press("Enter")
    tab.until("document.querySelectorAll('#previewed li').length")
    assert "The entry's consumer_byte_rate will end then, too." in tab.text("#change-said")
    api.token = TOKEN
    tab.until("!document.querySelector('#apply').disabled")
    tab.click("#apply")
    tab.until("document.querySelector('#token-dialog').open")
    tab.type(TOKEN)
    tab.press("Enter")
    tab.until("document.querySelector('#change-said').textContent === 'Applied.'")
    assert api.bodies[-1].ops == dict(zip(BYTE_RATES, (3_000_000.0, 5_000_000.0), strict=True))


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_preview_stays_when_the_quotas_arrive_after_it(
    tab: Browser, api: FakeApi, url: str, token: str | None
) -> None:
    api.token = token
    shown(tab, url)
    api.late.add("/api/quotas")
    tab.click("#tab-quotas")
    tab.read("document.querySelector('#name-user').focus()")
    tab.type("alice")
    tab.read("document.querySelector('#quota-value').focus()")
    tab.type("1.5 MB")
    tab.press("Enter")
    tab.until("document.querySelectorAll('#previewed li').length")
    said = tab.text("#change-said")
    assert tab.read(f"{ROWS}.length") == 0
    api.late.clear()
    tab.until(f"{ROWS}.length")
    assert "at least 3 min 4 s" in tab.text("#previewed")
    assert tab.text("#change-said") == said
    assert tab.read("document.querySelector('#apply').disabled") is (token is None)


def test_a_number_that_is_none_is_refused_by_the_form_with_examples(
    tab: Browser, api: FakeApi, url: str
) -> None:
    shown(tab, url)
    chosen(tab, "quotas")
    tab.click("#preview")
    tab.until("document.querySelector('#change-said').textContent")
    assert (
        tab.text("#change-said")
        == "Choose whom the quota is for: a user, a client-id, an IP address, a topic, a prefix or a group."
    )
    tab.read("document.querySelector('#name-user').focus()")
    tab.type("alice")
    tab.read("document.querySelector('#quota-value').focus()")
    tab.type("many")
    tab.click("#preview")
    tab.until("document.querySelector('#change-said').textContent.includes('is no number')")
    assert api.bodies == []


def test_the_page_asks_for_the_token_when_the_api_wants_one(tab: Browser, api: FakeApi, url: str) -> None:
    api.private, api.token = True, TOKEN
    tab.open(url)
    for given, title in (("wrong", "the token is wrong"), (TOKEN, None)):
        tab.until("document.querySelector('#token-dialog').open")
        tab.read("document.querySelector('#token').focus()")
        tab.type(given)
        tab.press("Enter")
        if title:
            tab.until(f"document.querySelector('#token-said').textContent.includes({json.dumps(title)})")
    tab.until(f"{ROWS}.length")
    assert tab.read("document.querySelector('#token-dialog').open") is False


def test_throttled_clients_of_a_real_weir_appear_without_reload(tab: Browser, tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text('[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 1000\n')

    def watch(stage: Stage) -> None:
        tab.open(f"http://{HOST}:{stage.admin}")
        tab.until("document.querySelector('#throttled-title').textContent === 'Throttled: nobody now'")

    def appeared(client: str) -> None:
        tab.until(f"document.querySelector('#throttled').textContent.includes('client-id={client}')")

    async def script(stage: Stage) -> None:
        await stage.start()
        await trio.to_thread.run_sync(watch, stage)
        clients: list[Connection] = []
        for name in ("one", "two", "three"):
            client = Connection(await trio.open_tcp_stream(HOST, stage.clients))
            await client.stream.send_all(produce(name))
            await trio.to_thread.run_sync(appeared, name)
            clients.append(client)
        (first, *_) = (await stage.json("/api/throttled"))["entities"]
        assert "1 kB/s" in await trio.to_thread.run_sync(tab.text, "#throttled li:first-child")
        assert first["limit"] == 1000
        for name in ("used", "brokers", "connections", "quotas", "weir"):
            await trio.to_thread.run_sync(chosen, tab, name)
        for client in clients:
            await client.stream.aclose()

    play_with(script, quotas)


def test_the_release_button_ends_the_waits_of_a_client_whose_quota_was_raised(
    tab: Browser, tmp_path: Path
) -> None:
    quotas, token = tmp_path / "quotas.toml", tmp_path / "token"
    quotas.write_text('[[quota]]\nclient_id = "app"\nproducer_byte_rate = 1\n')
    token.write_text(TOKEN)
    raised = {"entity": {"client-id": "app"}, "ops": {"producer_byte_rate": 1_000_000}}

    def press_release(*said: str) -> None:
        tab.click("#detail-actions button:nth-child(2)")
        for text in said:
            tab.until(f"document.querySelector('#detail-said').textContent.includes({json.dumps(text)})")

    def try_early(stage: Stage) -> None:
        tab.open(f"http://{HOST}:{stage.admin}")
        tab.until("document.querySelector('#throttled li button')")
        tab.click("#throttled li button")
        assert tab.text("#detail-actions button:nth-child(2)") == "End its waits"
        press_release()
        tab.until("document.querySelector('#token-dialog').open")
        tab.type(TOKEN)
        tab.press("Enter")
        tab.until(
            "document.querySelector('#detail-said').textContent.startsWith('Still waiting: 1, for at most ')"
        )

    async def script(stage: Stage) -> None:
        await stage.start()
        client = Connection(await trio.open_tcp_stream(HOST, stage.clients))
        await client.stream.send_all(produce("app"))
        await trio.to_thread.run_sync(try_early, stage)
        assert (await stage.post("/api/quotas", raised, TOKEN))[0] == 200
        await trio.to_thread.run_sync(press_release, "Connections released: 1.")
        assert not (await stage.json("/api/connections?state=THROTTLED"))["connections"]
        await client.stream.aclose()

    play_with(script, quotas, admin_token_file=str(token))
