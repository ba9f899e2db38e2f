"""Passes a decision on to the node that makes it.

A request travels as a value on ``op.<node>``: operation, principal, fields. It is signed with a key that only the nodes
have, so that nobody else at the broker can name a principal. Invariant: a request is passed on again only if it is certain
that no node has begun it; else the caller gets a 503 and repeats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from ...schemas.core import errors
from ...schemas.core.errors import CrewJournalError, EntryTooLarge, FieldProblem, ViewsBehind
from ...schemas.core.operation import Operation
from ...schemas.core.principal import Principal
from ...schemas.entries.tables import ADMISSION_PROJECTION
from ...schemas.operations import ALL
from ...schemas.settings import MIN_SEQ_WAIT_S, PUBLISH_DEADLINE_S
from ..budgets import SPENDER, Budgets
from ..desk import RUN, Caller, Desk, decided_for, parse
from ..ownership import FENCE
from ..problem import log_unexpected
from .membership import Members, not_owner

ANSWER_S: Final = PUBLISH_DEADLINE_S + 2 * MIN_SEQ_WAIT_S
"""Seconds for the answer of the owner: an append may take 30 s while the broker is away, then the views."""
FIND_S: Final = 12.0
"""Seconds until a request gives up to find an owner; a lost node is replaced within 6 s."""
PAUSE_S: Final = 0.1
"""Seconds until a request looks for the owner again."""
REFOLD_S: Final = 600.0
"""Seconds for another node to fold its views again."""
ENVELOPE_BYTES: Final = 4_096
"""Bytes of a message besides the request."""
_SIGNATURE: Final = 32
_OPERATIONS: Final = {operation.name: operation for operation in ALL}
_log = structlog.get_logger(__name__)


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


class RoutedOwnership(Members):
    """A node that makes its own decisions and passes the others on."""

    _desk: Desk
    _budgets: Budgets
    _key: bytes
    _refold: Callable[[str], Awaitable[None]]

    async def serve(
        self,
        desk: Desk,
        budgets: Budgets,
        key: bytes,
        refold: Callable[[str], Awaitable[None]],
    ) -> None:
        """Answer requests of other nodes from now on.

        Args:
            desk: Answers operations.
            budgets: Of the tokens; the node that decides counts.
            key: Signs requests.
            refold: Drops what was erased of a workspace from the views and files of this node.
        """
        self._desk, self._budgets, self._key, self._refold = desk, budgets, key, refold
        self._serving: set[asyncio.Task[None]] = set()
        for subject, take in ((f"op.{self.name}", self._on_request), (f"refold.{self.name}", self._on_refold)):
            await self.client.subscribe(subject, cb=take)

    async def stop(self) -> None:
        """Leave, then finish what was begun."""
        await super().stop()
        if tasks := getattr(self, "_serving", None):
            await asyncio.wait(tasks, timeout=MIN_SEQ_WAIT_S)

    # at the node that was asked

    async def decide(
        self,
        operation: Operation[Any, Any],
        workspace_id: str,
        principal: Principal,
        raw: Mapping[str, Any],
        here: Callable[[], Awaitable[Any]],
    ) -> Any:
        """See ``Ownership.decide``.

        Raises:
            NotOwner: If the owner was lost while it worked on the request, or there is none.
            EntryTooLarge: If the request does not fit into a message of the broker.
            CrewJournalError: The error of the owner.
        """
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
                body = body or self._signed(
                    {
                        "operation": operation.name,
                        "principal": principal.model_dump(mode="json"),
                        "raw": dict(raw),
                        "run": RUN.get(),
                    }
                )
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
        asked = asyncio.ensure_future(self.client.request(subject, body, timeout=ANSWER_S))
        try:
            while not asked.done():
                changed = asyncio.ensure_future(self.change())
                await asyncio.wait({asked, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if not asked.done() and self.owner(workspace_id) != owner:
                    raise not_owner()
            answer = orjson.loads(asked.result().data)
        except NoRespondersError:
            return None
        except (NatsError, TimeoutError):
            raise not_owner() from None
        finally:
            asked.cancel()
        return None if answer.get("moved") else answer

    async def _shown(self, operation: Operation[Any, Any], answer: Mapping[str, Any]) -> Any:
        """The answer, once the views of this node show what the owner's showed."""
        if (refused := answer.get("error")) is not None:
            raise error_of(refused)
        decided = operation.answer.model_validate(answer["answer"])
        try:
            await self._views.wait_for(answer["view_seq"], MIN_SEQ_WAIT_S, *operation.views or (ADMISSION_PROJECTION,))
        except ViewsBehind:
            if getattr(decided, "visible", False):
                return decided.model_copy(update={"visible": False})
        return decided

    # at the owner

    async def _on_request(self, message: Msg) -> None:
        task = asyncio.create_task(self._answer(message), name="operation of another node")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _answer(self, message: Msg) -> None:
        asked = self._checked(message.data)
        if asked is None:
            return
        operation = _OPERATIONS.get(asked["operation"])
        principal = Principal.model_validate(asked["principal"])
        answer: dict[str, Any] = {"moved": True}  # an operation that this version does not know is not begun, either
        if operation is not None:
            try:
                request = parse(operation, asked["raw"])
                caller = Caller.of(principal, getattr(request, "workspace_id", None))
                if self.hold(decided_for(operation, caller.workspace_id)):
                    SPENDER.set(self._budgets.spender(principal))
                    RUN.set(asked["run"])
                    decided = await self._desk.run(operation, principal, asked["raw"])
                    answer = {"answer": decided.model_dump(mode="json"), "view_seq": self._seen_to()}
            except CrewJournalError as error:
                answer = {"error": error_as_value(error)}
            except Exception as error:
                log_unexpected(error, self._run)
                unexpected = CrewJournalError("an unexpected fault of the node that decides; it is in its log")
                answer = {"error": error_as_value(unexpected)}
        with contextlib.suppress(NatsError):
            await message.respond(orjson.dumps(answer))

    # erasures

    async def refold_others(self, workspace_id: str) -> Mapping[str, bool]:
        """See ``Ownership.refold_others``."""
        others = [name for name in self.shown().nodes if not name.here]
        body = self._signed({"workspace_id": workspace_id})

        async def ask(name: str) -> bool:
            try:
                answer = await self.client.request(f"refold.{name}", body, timeout=REFOLD_S)
            except (NatsError, TimeoutError):
                return False
            return bool(orjson.loads(answer.data).get("done"))

        done = await asyncio.gather(*(ask(node.name) for node in others))
        return {node.name: ok for node, ok in zip(others, done, strict=True)}

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
