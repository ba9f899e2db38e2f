"""Runs the expectations of a workspace, with the active embedding model or on trial with another one.

Invariant: a run records nothing; no receipt, no use. What a workspace expects is one of its settings, so that every node
knows it before it activates a model.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from ...schemas.access.tables import WORKSPACE_SETTINGS
from ...schemas.core.errors import ExpectationsNotMet, FieldProblem, InvalidRequest, NotFound
from ...schemas.core.expectations import MOST_EXPECTATIONS, Expectation, ExpectationName, unmet
from ...schemas.core.principal import Principal, Role
from ...schemas.models.tables import read_active_models
from ...schemas.recall import operations as ops
from ...schemas.text.analyzer import strings_in
from ..desk import Caller
from ..node import Answers, Node, PastMoments
from .model_search import model_on_trial

_ADAPTER: Final = TypeAdapter(dict[ExpectationName, Expectation])
_SETTINGS: Final = f"SELECT workspace_id, settings FROM {WORKSPACE_SETTINGS} WHERE $1 IS NULL OR workspace_id = $1"
_SHOWN: Final = 5
"""Expectations that an error names."""


def expectations_of(given: Mapping[str, Any]) -> dict[str, Expectation]:
    """Expectations by name.

    Raises:
        InvalidRequest: Names each wrong field (``expectations.NAME.query``).
    """
    if len(given) > MOST_EXPECTATIONS:
        fix = f"send at most {MOST_EXPECTATIONS}"
        raise InvalidRequest((FieldProblem("expectations", f"{len(given)} are too many", fix),))
    try:
        return _ADAPTER.validate_python(dict(given))
    except ValidationError as error:
        problems = [
            FieldProblem(
                ".".join(("expectations", *(str(part) for part in fault["loc"]))), fault["msg"], "see docs/why.md"
            )
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise InvalidRequest(tuple(problems)) from None


class Expectations:
    """The use-case, and the check before an activation."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._recall = node.recall

    async def run(self, caller: Caller, request: ops.RunExpectationsRequest) -> ops.RunExpectationsAnswer:
        """Run the given expectations, or those of the workspace.

        Raises:
            InvalidRequest: If one is not valid.
            NotFound: If none are given and the workspace has none, or it has no vectors of the model.
        """
        workspace_id = caller.workspace_id
        model = request.model and await model_on_trial(self._node, workspace_id, request.model)
        if request.expectations is None:
            stored = await asyncio.to_thread(self._stored, workspace_id)
            if not stored:
                raise NotFound(
                    f"the workspace {workspace_id} has no expectations",
                    hint="`crew-journal test FILE --save` stores them",
                )
            expected = stored[workspace_id]
        else:
            expected = expectations_of(request.expectations)
        results = [await self._result(workspace_id, name, one, model) for name, one in expected.items()]
        failed = sum(not result.met for result in results)
        return ops.RunExpectationsAnswer(
            workspace_id=workspace_id, results=tuple(results), passed=len(results) - failed, failed=failed
        )

    async def check(self, workspace_id: str | None, model: str | None = None) -> None:
        """Check the expectations of a workspace, or (None) of all without an own model, before something is activated.

        Args:
            workspace_id: The workspace.
            model: The embedding model that is to be activated, on trial; None to check what recalls return now.

        Raises:
            ExpectationsNotMet: Names the first that are not met.
        """
        stored = await asyncio.to_thread(self._stored, workspace_id)
        own = await asyncio.to_thread(read_active_models, self._views)
        red = []
        for name, expected in stored.items():
            if workspace_id is None and name in own:
                continue
            for title, one in expected.items():
                if one.as_of is not None:  # what is activated does not change the past
                    continue
                result = await self._result(name, title, one, model)
                red += [f"{name}: {title}: {result.problems[0]}"] if result.problems else []
        if red:
            raise ExpectationsNotMet(
                f"{len(red)} expectations are not met{'' if model is None else f' with {model}'}: {'; '.join(red[:_SHOWN])}",
                hint="`crew-journal test` shows all; to go on all the same: --force --reason TEXT",
                field="model" if model is not None else None,
            )

    async def _result(
        self, workspace_id: str, name: str, expected: Expectation, model: str | None
    ) -> ops.ExpectationResult:
        request = ops.RecallRequest(
            **expected.model_dump(include={"query", "scope", "agent_id", "crew_id", "kinds", "mode", "k"}),
            workspace_id=workspace_id,
        )
        tester = Principal(token_id="expectations", role=Role.OWNER, workspace_id=workspace_id)
        if expected.as_of is None:
            answer = (await self._recall.answer(tester, request, trial=model)).response
        else:
            async with self._node.use(PastMoments).at(expected.as_of, "as_of") as moment:
                answer = (await moment.node.recall.answer(tester, request)).response
        problems = unmet(expected, [text_of(hit) for hit in answer.hits])
        return ops.ExpectationResult(
            name=name,
            query=expected.query,
            met=not problems,
            problems=problems,
            hits=tuple(hit.summary for hit in answer.hits),
            model=answer.model,
        )

    def _stored(self, workspace_id: str | None) -> dict[str, dict[str, Expectation]]:
        """Workspace → its expectations, for those that have any; blocking."""
        found = {}
        for name, settings in self._views.rows(_SETTINGS, [workspace_id]):
            if given := json.loads(settings).get("expectations"):
                found[str(name)] = expectations_of(given)
        return found


def text_of(hit: ops.RecallHit) -> str:
    """The text of a hit and its key.

    The strings of payload and refs stand there as they were written, too: JSON escapes quotes, backslashes and line breaks.
    """
    parts = [hit.summary]
    for value in (hit.payload, hit.refs):
        parts += [json.dumps(value, ensure_ascii=False), *strings_in(value)]
    if hit.document is not None:
        parts.append(f"{hit.document.owner}/{hit.document.file}")
    if hit.drawer is not None:
        parts.append(f"{hit.drawer.wing}/{hit.drawer.room}")
    if hit.fact is not None:
        parts.append(f"{hit.fact.subject} {hit.fact.predicate} {hit.fact.object}")
    return "\n".join(parts)


ANSWERS: Final[Answers] = ((ops.RUN_EXPECTATIONS, Expectations.run),)
