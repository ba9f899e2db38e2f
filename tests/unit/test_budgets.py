"""Budgets of tokens: what is admitted, what is charged, when it is given back, and to whom they do not apply."""

from __future__ import annotations

import pytest

from crew_journal.schemas.core.errors import EntryTooLarge, OverBudget, Overloaded
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.settings import Settings
from crew_journal.services.budgets import ACCOUNTS_KEPT, BudgetLimits, Budgets, Spender
from crew_journal.services.client.core import ATTEMPTS, LONGEST_RETRY_AFTER_S, HttpRequest, checked, pause_after
from crew_journal.services.http.bodies import BodyBudget, OpenRequests, Share, error_response

MIB = 2**20


def agent(name: str) -> Principal:
    return Principal(token_id=name, role=Role.AGENT, workspace_id="w", agent_id=name)


class World:
    """Budgets with a clock and a position of the folds that a test moves."""

    def __init__(self, limits: BudgetLimits) -> None:
        self.now = 0.0
        self.folded = 0
        self.budgets = Budgets(limits, lambda: self.folded, lambda: self.now)

    def request(self, name: str = "ada") -> Spender:
        spender = self.budgets.spender(agent(name))
        assert spender is not None
        return spender

    def write(self, seq: int, size: int, entries: int = 1, name: str = "ada") -> None:
        spender = self.request(name)
        spender.begin(size)
        spender.end(size)
        spender.charge(seq, entries, size)


def test_owner_and_admin_have_no_budgets() -> None:
    budgets = Budgets()
    assert budgets.spender(Principal(token_id="owner", role=Role.OWNER, workspace_id=None)) is None
    assert budgets.spender(Principal(token_id="t", role=Role.ADMIN, workspace_id="w")) is None
    assert budgets.spender(agent("ada")) is not None


@pytest.mark.parametrize(
    ("limits", "budget", "setting"),
    [
        (BudgetLimits(bytes_per_minute=1_000), "bytes a minute", "CREW_JOURNAL_TOKEN_MB_PER_MINUTE"),
        (BudgetLimits(entries_per_minute=10), "entries a minute", "CREW_JOURNAL_TOKEN_ENTRIES_PER_MINUTE"),
    ],
)
def test_what_is_written_within_a_minute_is_bounded_and_the_wait_that_is_named_is_enough(
    limits: BudgetLimits, budget: str, setting: str
) -> None:
    world = World(limits)
    world.write(10, 1_500, entries=15)
    with pytest.raises(OverBudget) as refused:
        world.request().admit()
    assert (refused.value.budget, refused.value.setting) == (budget, setting)
    world.write(11, 150, name="bea")
    world.now += refused.value.retry_after_s + 0.001
    world.request().admit()


def test_bytes_that_wait_to_be_folded_are_bounded_until_they_are_folded() -> None:
    world = World(BudgetLimits(waiting_bytes=1_000))
    world.write(1, 600)
    with pytest.raises(OverBudget) as refused:
        world.request().begin(600)
    assert refused.value.setting == "CREW_JOURNAL_TOKEN_WAITING_MB"
    world.write(2, 600, name="bea")
    world.folded = 1
    world.write(3, 600)


def test_bytes_that_are_being_written_count_before_they_are_acked() -> None:
    world = World(BudgetLimits(waiting_bytes=1_000))
    first = world.request()
    first.begin(600)
    with pytest.raises(OverBudget):
        world.request().begin(600)
    first.end(600)  # it failed: nothing was written
    world.request().begin(600)


def test_a_request_that_could_never_be_admitted_is_too_large_instead_of_over_budget() -> None:
    with pytest.raises(EntryTooLarge):
        World(BudgetLimits(waiting_bytes=1_000)).request().begin(1_001)


def test_a_request_that_was_admitted_is_never_refused_half_way() -> None:
    world = World(BudgetLimits(bytes_per_minute=1_000, waiting_bytes=1_000))
    spender = world.request()
    spender.admit()
    for seq in range(1, 6):
        spender.begin(900)
        spender.end(900)
        spender.charge(seq, 1, 900)
    with pytest.raises(OverBudget):
        world.request().admit()


def test_zero_means_no_bound() -> None:
    world = World(BudgetLimits(0, 0, 0))
    for seq in range(1, 200):
        world.write(seq, 100 * MIB)
    world.request().begin(100 * MIB)


def test_accounts_in_memory_are_bounded() -> None:
    world = World(BudgetLimits(entries_per_minute=1))
    world.write(1, 1)
    for at in range(ACCOUNTS_KEPT):
        world.request(f"a{at}")
    world.request().admit()


def test_the_limits_of_a_node_are_its_settings() -> None:
    settings = Settings(token_mb_per_minute=3, token_entries_per_minute=5, token_waiting_mb=7)
    assert BudgetLimits.of(settings) == BudgetLimits(3 * MIB, 5, 7 * MIB)


def test_open_requests_are_bounded_for_a_token_and_for_all_agents_and_given_back() -> None:
    requests, bodies = OpenRequests(per_token=2, in_all=3), BodyBudget(8 * MIB)
    shares = []
    for name in ("a", "a", "b"):
        requests.enter(name)
        shares.append(Share(bodies, name, requests))
    with pytest.raises(OverBudget) as refused:
        requests.enter("a")
    assert refused.value.setting == "CREW_JOURNAL_TOKEN_REQUESTS"
    with pytest.raises(Overloaded):
        requests.enter("b")
    shares[0].end()
    shares[0].end()
    requests.enter("b")
    assert requests.open == 3


def test_the_answer_names_budget_setting_and_wait_and_a_client_waits_that_long() -> None:
    error = OverBudget("too much", budget="bytes a minute", setting="CREW_JOURNAL_X", retry_after_s=6.2)
    answer = error_response(error, "t")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    with pytest.raises(OverBudget) as told:
        checked(answer.status_code, bytes(answer.body))
    assert (told.value.budget, told.value.setting, told.value.retry_after_s) == ("bytes a minute", "CREW_JOURNAL_X", 7)
    again = HttpRequest("POST", "/v1/journal")
    assert 7 <= pause_after(told.value, 1, again) < 8
    told.value.retry_after_s = 1e9
    assert pause_after(told.value, 1, again) <= LONGEST_RETRY_AFTER_S + 1
    for attempt, request in ((ATTEMPTS, again), (1, HttpRequest("POST", "/v1/palace/drawers", repeatable=False))):
        with pytest.raises(OverBudget):
            pause_after(told.value, attempt, request)
