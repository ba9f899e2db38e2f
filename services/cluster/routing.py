"""Passes a decision on to the node that makes it, and a search to the node that keeps the workspace's texts in memory.

A request travels as a value on ``op.<node>``: operation, principal, fields. It is signed with a key that only the nodes
have, so that nobody else at the broker can name a principal. Invariant: a decision is passed on again only if it is certain
that no node has begun it; else the caller gets a 503 and repeats it. Every node has all views, so that any can search: the
owner does; the next node of the slot while the owner is silent, behind or still loads the texts, or its answer may be lost;
and this one if both are. The next node keeps large workspaces in memory, too, so that no search waits for the replacement
of a lost node, or for its texts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final, TypeVar

import orjson
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from ...schemas.core import errors
from ...schemas.core.errors import (
    CrewJournalError,
    EntryTooLarge,
    FieldProblem,
    InvalidQuery,
    NotFound,
    Unavailable,
    ViewsBehind,
)
from ...schemas.core.operation import Effect, Operation
from ...schemas.core.ports import NearQuery, NearText
from ...schemas.core.principal import Principal
from ...schemas.entries.tables import ADMISSION_PROJECTION
from ...schemas.operations import ALL
from ...schemas.settings import MIN_SEQ_WAIT_S, PUBLISH_DEADLINE_S
from ..budgets import SPENDER, Budgets
from ..desk import RUN, Caller, Desk, decided_for, parse
from ..index.cache import HotCache
from ..ownership import FENCE
from ..problem import log_unexpected
from .membership import Members, not_owner

ANSWER_S: Final = PUBLISH_DEADLINE_S + 2 * MIN_SEQ_WAIT_S
"""Seconds for the answer of the owner: an append may take 30 s while the broker is away, then the views."""
FIND_S: Final = 12.0
"""Seconds until a request gives up to find an owner; a lost node is replaced within 6 s."""
LOST_S: Final = 12.0
"""Seconds for the answer to a decision after a connection was lost: with it, the answer may be lost, too, or its owner waits
up to 8 s for the election of a leader.
"""
PAUSE_S: Final = 0.1
"""Seconds until a request looks for the owner again."""
SILENT_S: Final = 1.0
"""Seconds since the last heartbeat of a node, of two a second, after which another one answers its searches."""
LOADED_S: Final = 0.25
"""Seconds for a node to load texts, before another one is asked that may have them in memory."""
LARGE_TEXTS: Final = 10_000
"""Texts from which on a workspace is in the memory of two nodes: loading so many takes longer than ``LOADED_S``."""
NEXT_EVERY: Final = 16
"""One of so many searches of a large workspace is answered by the next node of its slot, which keeps the texts for it."""
LOOK_S: Final = 0.25
"""Seconds between two looks whether the node that searches is still heard."""
CAUGHT_UP_S: Final = 0.5
"""Seconds for the views of the node that searches to reach those of the node that was asked."""
DRAINED_S: Final = 15.0
"""Seconds until the nodes act under an assignment without a drained node."""
REFOLD_S: Final = 600.0
"""Seconds for another node to fold its views again."""
ENVELOPE_BYTES: Final = 4_096
"""Bytes of a message besides the request."""
_SIGNATURE: Final = 32
_OPERATIONS: Final = {operation.name: operation for operation in ALL}
_log = structlog.get_logger(__name__)
_PASSED: Final[ContextVar[bool]] = ContextVar("crew_journal_passed", default=False)
"""Whether another node has passed the request on: it is answered here, also if the owner has changed meanwhile."""
T = TypeVar("T")
Nearest = Callable[[NearQuery], Awaitable[list[list[NearText]]]]


def error_as_value(error: CrewJournalError) -> dict[str, Any]:
    """An error with all its fields, for the node that asked."""
    fields = {name: value for name, value in vars(error).items() if name != "problems"}
    problems = [problem.as_dict() for problem in getattr(error, "problems", ())]
    return {"code": type(error).__name__, "fields": fields, "problems": problems}


def error_of(value: Mapping[str, Any]) -> CrewJournalError:
    """The error of ``error_as_value``, of the same class."""
    kind = getattr(errors, value["code"], None)
    if not (isinstance(kind, type) and issubclass(kind, CrewJournalError)):
        kind = CrewJournalError
    error: CrewJournalError = kind.__new__(kind)
    Exception.__init__(error, value["fields"].get("message", ""))
    vars(error).update(value["fields"])
    if value["problems"]:
        vars(error)["problems"] = tuple(FieldProblem(**problem) for problem in value["problems"])
    return error


def _as_value(operation: Operation[Any, Any], principal: Principal, raw: Mapping[str, Any]) -> dict[str, Any]:
    who = principal.model_dump(mode="json")
    return {"operation": operation.name, "principal": who, "raw": dict(raw), "run": RUN.get()}


class RoutedOwnership(Members):
    """A node that decides and searches for its own workspaces and passes other requests on."""

    _desk: Desk
    _budgets: Budgets
    _key: bytes
    _refold: Callable[[str], Awaitable[None]]
    _nearest: Nearest
    _cache: HotCache

    async def serve(
        self,
        desk: Desk,
        budgets: Budgets,
        key: bytes,
        refold: Callable[[str], Awaitable[None]],
        nearest: Nearest,
        cache: HotCache,
    ) -> None:
        """Answer requests of other nodes from now on.

        Args:
            desk: Answers operations.
            budgets: Of the tokens; the node that decides counts.
            key: Signs requests.
            refold: Drops what was erased of a workspace from the views and files of this node.
            nearest: Searches the indexes of this node for reactors of other nodes.
            cache: Those indexes.
        """
        self._desk, self._budgets, self._key = desk, budgets, key
        self._refold, self._nearest, self._cache = refold, nearest, cache
        self._large: dict[str, int] = {}
        self._serving: set[asyncio.Task[None]] = set()
        takes = {"op": self._on_request, "refold": self._on_refold, "drain": self._on_drain}
        for subject, take in takes.items():
            await self.client.subscribe(f"{subject}.{self.name}", cb=take)

    async def stop(self) -> None:
        """Leave, then finish what was begun."""
        await super().stop()
        if tasks := getattr(self, "_serving", None):
            await asyncio.wait(tasks, timeout=MIN_SEQ_WAIT_S)

    # at the node that was asked

    async def answer(
        self,
        operation: Operation[Any, Any],
        workspace_id: str,
        principal: Principal,
        raw: Mapping[str, Any],
        here: Callable[[], Awaitable[Any]],
    ) -> Any:
        """See ``Ownership.answer``.

        Raises:
            NotOwner: If the owner of a decision was lost while it worked on the request, or there is none.
            EntryTooLarge: If a decision does not fit into a message of the broker.
            CrewJournalError: The error of the owner.
        """
        asked = partial(_as_value, operation, principal, raw)
        if operation.effect is not Effect.READS:
            return await self._decided(operation, workspace_id, asked, here)
        if _PASSED.get():
            return await here()
        names = self._searching(workspace_id)
        for place, name in enumerate(names):
            is_last = place == len(names) - 1
            if name == self.name:
                found = await here() if is_last else await self._unless_loading(workspace_id, here)
                if found is not None:
                    return found
            elif (answer := await self._searched_by(name, {**asked(), "waits": is_last})) is not None:
                if answer.get("large") and workspace_id not in self._large:
                    self._large[workspace_id] = 0
                return await self._shown(operation, answer, CAUGHT_UP_S)
        return await here()

    def _searching(self, workspace_id: str) -> tuple[str, ...]:
        """The nodes to ask, in this order; usually the owner first."""
        names = self.searching(workspace_id)
        if len(names) < 2:
            return names
        if workspace_id not in self._large and (names[0] != self.name or not self._is_large(workspace_id)):
            return names
        self._large[workspace_id] = count = self._large.get(workspace_id, 0) + 1
        return names[::-1] if count % NEXT_EVERY == 0 else names

    def _is_large(self, workspace_id: str) -> bool:
        return self._cache.texts(workspace_id) >= LARGE_TEXTS

    async def _unless_loading(self, workspace_id: str, run: Callable[[], Awaitable[T]]) -> T | None:
        """The answer; None if texts for it are still being loaded after ``LOADED_S``."""
        running = asyncio.ensure_future(run())
        try:
            await asyncio.wait({running}, timeout=LOADED_S)
            if not running.done() and self._cache.is_loading(workspace_id):
                return None
            return await running
        finally:
            running.cancel()

    async def _decided(
        self,
        operation: Operation[Any, Any],
        workspace_id: str,
        asked: Callable[[], Mapping[str, Any]],
        here: Callable[[], Awaitable[Any]],
    ) -> Any:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + FIND_S
        body = b""
        while True:
            tenure, owner = self.tenure(workspace_id), self.owner(workspace_id)
            if tenure is not None:
                token = FENCE.set(tenure)
                try:
                    return await here()
                finally:
                    FENCE.reset(token)
            if owner is not None and owner != self.name:
                body = body or self._signed(asked())
                answer = await self._ask(owner, workspace_id, f"op.{owner}", body)
                if answer is not None:
                    return await self._shown(operation, answer)
            if loop.time() > give_up:
                raise not_owner()
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, owner: str, workspace_id: str, subject: str, body: bytes) -> dict[str, Any] | None:
        """The owner's answer; None if it is certain that it has not begun."""
        if len(body) + ENVELOPE_BYTES > self.client.max_payload:
            raise EntryTooLarge(
                f"the request has {len(body):,} bytes, the broker passes on {self.client.max_payload:,}",
                hint=f"send it in parts, or to {owner}, which decides for the workspace",
            )
        link, give_up = self._link(owner), math.inf
        asked = asyncio.ensure_future(self.client.request(subject, body, timeout=ANSWER_S))
        try:
            while not asked.done():
                changed = asyncio.ensure_future(self.change())
                await asyncio.wait({asked, changed}, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if give_up == math.inf and self._link(owner) != link:
                    give_up = time.monotonic() + LOST_S
                if not asked.done() and (self.owner(workspace_id) != owner or time.monotonic() > give_up):
                    raise not_owner()
            answer = orjson.loads(asked.result().data)
        except NoRespondersError:
            return None
        except (NatsError, TimeoutError):
            raise not_owner() from None
        finally:
            asked.cancel()
        return None if answer.get("moved") else answer

    async def _shown(
        self, operation: Operation[Any, Any], answer: Mapping[str, Any], wait_s: float = MIN_SEQ_WAIT_S
    ) -> Any:
        """The answer, once the views of this node show what the owner's showed."""
        if (refused := answer.get("error")) is not None:
            raise error_of(refused)
        decided = operation.answer.model_validate(answer["answer"])
        try:
            await self._views.wait_for(answer["view_seq"], wait_s, *operation.views or (ADMISSION_PROJECTION,))
        except ViewsBehind:
            if getattr(decided, "visible", False):
                return decided.model_copy(update={"visible": False})
        return decided

    async def nearest(self, query: NearQuery, here: Nearest) -> list[list[NearText]]:
        """See ``Ownership.nearest``."""
        vectors = [b64encode(vector).decode() for vector in query.vectors]
        near = {"near": {**asdict(replace(query, vectors=())), "vectors": vectors}}
        for name in self.searching(query.workspace_id):
            if name == self.name:
                break
            answer = await self._searched_by(name, near)
            if answer is not None and "near" in answer:
                return [[NearText(*text) for text in texts] for texts in answer["near"]]
        return await here(query)  # it is repeated here if it failed there

    async def _searched_by(self, owner: str, value: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer of a node that searches; None if another must answer, since it is silent, behind or still loads."""
        body = self._signed({**value, "seen": self._seen_to()})
        if len(body) + ENVELOPE_BYTES > self.client.max_payload or not self._is_heard(owner):
            return None
        link = self._link(owner)
        asked = asyncio.ensure_future(self.client.request(f"op.{owner}", body, timeout=ANSWER_S))
        try:
            while not asked.done():
                await asyncio.wait({asked}, timeout=LOOK_S)
                if not asked.done() and (not self._is_heard(owner) or self._link(owner) != link):
                    return None
            answer: dict[str, Any] = orjson.loads(asked.result().data)
        except (NatsError, TimeoutError):
            return None
        finally:
            asked.cancel()
        return None if answer.get("moved") else answer

    def _is_heard(self, name: str) -> bool:
        peer = self._peers.get(name)
        return self.client.is_connected and peer is not None and time.monotonic() - peer.heard <= SILENT_S

    def _link(self, name: str) -> tuple[int, int]:
        """Reconnects here and there: if it changes while a node is asked, its answer may be lost."""
        peer = self._peers.get(name)
        return self.client.state.reconnects, 0 if peer is None else peer.reconnects

    # at the owner

    async def _on_request(self, message: Msg) -> None:
        task = asyncio.create_task(self._answer(message), name="operation of another node")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _answer(self, message: Msg) -> None:
        asked = self._checked(message.data)
        if asked is None:
            return
        try:
            answer = await (self._answer_near(asked) if "near" in asked else self._answer_operation(asked))
        except CrewJournalError as error:
            answer = {"error": error_as_value(error)}
        except Exception as error:
            log_unexpected(error, self._run)
            unexpected = CrewJournalError("an unexpected fault of the node that was asked; it is in its log")
            answer = {"error": error_as_value(unexpected)}
        data = orjson.dumps(answer)
        if len(data) > self.client.max_payload:
            large = f"the answer has {len(data):,} bytes, the broker passes on {self.client.max_payload:,}"
            hint = f"what was asked for is done; ask {self.name} for the answer"
            refused = {"moved": True} if "seen" in asked else {"error": error_as_value(EntryTooLarge(large, hint=hint))}
            data = orjson.dumps(refused)
        with contextlib.suppress(NatsError):
            await message.respond(data)

    async def _answer_operation(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        operation = _OPERATIONS.get(asked["operation"])
        if operation is None:
            return {"moved": True}  # an operation that this version does not know is not begun, either
        principal = Principal.model_validate(asked["principal"])
        request = parse(operation, asked["raw"])
        caller = Caller.of(principal, getattr(request, "workspace_id", None))
        if operation.effect is Effect.READS:
            if not await self._has_seen(asked["seen"]):
                return {"moved": True}
            _PASSED.set(True)
        elif not self.hold(decided_for(operation, caller.workspace_id)):
            return {"moved": True}
        SPENDER.set(self._budgets.spender(principal))
        RUN.set(asked["run"])
        run = partial(self._desk.run, operation, principal, asked["raw"])
        decided = await (run() if asked.get("waits", True) else self._unless_loading(caller.workspace_id, run))
        if decided is None:
            return {"moved": True}
        answer = {"answer": decided.model_dump(mode="json"), "view_seq": self._seen_to()}
        return {**answer, "large": True} if self._is_large(caller.workspace_id) else answer

    async def _answer_near(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        if not await self._has_seen(asked["seen"], patient=True):
            return {"moved": True}
        near = asked["near"]
        query = NearQuery(**{**near, "vectors": [b64decode(vector) for vector in near["vectors"]]})
        found = await self._nearest(query)
        return {"near": [[(text.item, text.cosine, text.seq) for text in texts] for texts in found]}

    async def _has_seen(self, seq: int, *, patient: bool = False) -> bool:
        """Whether the views reach a sequence soon: what the other node has shown must be in the answer."""
        try:
            await self._views.wait_for(seq, CAUGHT_UP_S, ADMISSION_PROJECTION, patient=patient)
        except ViewsBehind:
            return False
        return True

    # erasures

    async def refold_others(self, workspace_id: str) -> Mapping[str, bool]:
        """See ``Ownership.refold_others``."""
        others = sorted(await self.others())
        body = self._signed({"workspace_id": workspace_id})

        async def ask(name: str) -> bool:
            try:
                answer = await self.client.request(f"refold.{name}", body, timeout=REFOLD_S)
            except (NatsError, TimeoutError):
                return False
            return bool(orjson.loads(answer.data).get("done"))

        return dict(zip(others, await asyncio.gather(*map(ask, others)), strict=True))

    async def _on_refold(self, message: Msg) -> None:
        task = asyncio.create_task(self._refold_and_answer(message), name="refold for another node")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _refold_and_answer(self, message: Msg) -> None:
        if (asked := self._checked(message.data)) is None:
            return
        done = True
        try:
            await self._refold(asked["workspace_id"])
        except Exception:
            _log.exception("cluster.refold_failed")
            done = False
        with contextlib.suppress(NatsError):
            await message.respond(orjson.dumps({"done": done}))

    # draining

    async def drain(self, name: str, *, undo: bool) -> None:
        """Take its slots from a node, or let it have slots again; returns when both act under that assignment.

        Raises:
            NotFound: If no node of this name is live.
            InvalidQuery: If no other node could have the slots.
            Unavailable: If the node or the others do not follow in time.
        """
        live = {node.name: node for node in self.shown().nodes}
        if name not in live:
            raise NotFound(f"no node is called {name}", hint=f"one of {', '.join(live)}")
        if not undo and all(node.drained for node in live.values() if node.name != name):
            raise InvalidQuery(f"no other node could have the slots of {name}", hint="start another node first")
        try:
            async with asyncio.timeout(DRAINED_S):
                body = self._signed({"drained": not undo})
                await self.client.request(f"drain.{name}", body, timeout=DRAINED_S)
                await self._until_assigned(name, is_assigned=undo)
        except (NatsError, TimeoutError):
            raise Unavailable(
                f"the slots of {name} have not moved yet", hint="look at `cluster status`, then repeat the command"
            ) from None

    async def _on_drain(self, message: Msg) -> None:
        if (asked := self._checked(message.data)) is None:
            return
        self.drained = bool(asked["drained"])
        await self.say_alive()
        with contextlib.suppress(NatsError, TimeoutError):
            async with asyncio.timeout(DRAINED_S):
                await self._until_assigned(self.name, is_assigned=not self.drained)
            await message.respond(b"{}")

    async def _until_assigned(self, name: str, *, is_assigned: bool) -> None:
        while (name in self.assignment.nodes) is not is_assigned:
            await self.change()

    # signatures

    def _signed(self, value: Mapping[str, Any]) -> bytes:
        body = orjson.dumps(value, default=str)
        return hmac.digest(self._key, body, "sha256") + body

    def _checked(self, data: bytes) -> dict[str, Any] | None:
        signature, body = data[:_SIGNATURE], data[_SIGNATURE:]
        if not hmac.compare_digest(signature, hmac.digest(self._key, body, "sha256")):
            _log.warning("cluster.unsigned_request")
            return None
        value: dict[str, Any] = orjson.loads(body)
        return value
