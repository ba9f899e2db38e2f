"""Operations on what crews have learned: run a consolidation, list the rules, add a lesson."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from ..entry import Id
from ..events.learning import LessonId, LessonKind
from ..views.learning import LEARNING_PROJECTION
from .operation import Access, Answer, Effect, MinSeq, Operation, Request, Visible, Workspace

Duration = Annotated[str, Field(pattern=r"^[1-9]\d{0,3}[hdw]$")]


class ConsolidateRequest(Request):
    """Learn rules from recurring entries of a crew.

    What one publisher alone reported, or all of which was received on one day, is proposed to a person instead.

    Returns when the run has finished, or after two seconds; it then continues in the background. One run at a time in a
    workspace. A crew with fewer than 10 candidates within the look-back is skipped, unless one is permanent.
    """

    crew_id: Id | None = Field(default=None, description="The crew; all if absent.")
    since: Duration = Field(
        default="24h",
        description="Look-back in hours, days or weeks: 24h, 7d, 2w.",
        json_schema_extra={"x-fix": "send a number of hours, days or weeks: 24h, 7d, 2w"},
    )
    workspace_id: Workspace = None


class LearnedRulesRequest(Request):
    """List the learned rules of a crew, with their evidence; the proven ones first."""

    crew_id: Id | None = Field(default=None, description="The crew, for OWNER and ADMIN; else that of the token.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class AddLessonRequest(Request):
    """Add a lesson to a crew or an agent; a lesson with the same id is replaced."""

    rule: str = Field(min_length=1, max_length=2_000, pattern=r"\S", description="What to do or to avoid.")
    kind: LessonKind = Field(default="neutral", description="positive, negative or neutral.")
    context: str = Field(default="", max_length=2_000, description="Where it was learned.")
    source: Literal["manual", "user_feedback"] = Field(default="manual", description="manual or user_feedback.")
    lesson_id: LessonId | None = Field(default=None, description="Id of the lesson; generated if absent.")
    crew_id: Id | None = Field(default=None, description="The crew whose lesson it is.")
    agent_id: Id | None = Field(default=None, description="The agent whose lesson it is, if no crew is given.")
    workspace_id: Workspace = None


class ConsolidationAnswer(Answer):
    """The run that was recorded: its ``due`` time, the beginning of its look-back, the ``seq`` of its event.

    If it has ``finished``, ``counts`` says what it did, and ``skipped`` why it left crews out, null if it left out none.
    """

    workspace_id: str
    crew_id: str | None
    due: str
    since: str
    seq: int
    finished: bool = False
    counts: dict[str, int] = Field(default_factory=dict)
    skipped: str | None = None


class LearnedRuleShown(Answer):
    """A learned rule; ``rule_id`` is that of its entry, which can be retracted.

    ``authors`` are those of its evidence, ``days`` the days on which it was received; ``reviewed``: a person approved it.
    """

    rule_id: str
    crew_id: str
    pattern: str
    action: str
    confidence: float
    evidence: tuple[str, ...]
    days: int
    authors: tuple[str, ...]
    reviewed: bool
    promoted: bool
    learned_at: str


class LearnedRulesAnswer(Answer):
    """The rules that count."""

    rules: tuple[LearnedRuleShown, ...]
    view_seq: int


class LessonAnswer(Answer):
    """The lesson; ``entry_id`` is that of its entry, which can be retracted."""

    lesson_id: str
    entry_id: str
    seq: int
    visible: Visible = True


CONSOLIDATE: Final = Operation(
    name="consolidate",
    request=ConsolidateRequest,
    answer=ConsolidationAnswer,
    route="POST /v1/admin/consolidations",
    effect=Effect.STARTS,
    access=Access.ADMINISTRATOR,
    errors=(404, 409),
    command="consolidate run",
    repeatable=False,
)
LEARNED_RULES: Final = Operation(
    name="learned_rules",
    request=LearnedRulesRequest,
    answer=LearnedRulesAnswer,
    route="GET /v1/memory/rules",
    effect=Effect.READS,
    views=(LEARNING_PROJECTION,),
    command="consolidate rules",
)
ADD_LESSON: Final = Operation(
    name="add_lesson",
    request=AddLessonRequest,
    answer=LessonAnswer,
    route="POST /v1/memory/lessons",
    effect=Effect.CREATES,
    access=Access.ADMINISTRATOR,
    command="lesson add",
    repeatable=False,
)
OPERATIONS: Final = (CONSOLIDATE, LEARNED_RULES, ADD_LESSON)
