"""Operations on operator models: show, list, forget, consent, further names, delete, and a lost key."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StrictBool

from ..core.entry import Name
from ..core.operation import Access, Answer, AsOf, Effect, MinSeq, Operation, Request, Visible, Workspace
from .events import FactKey
from .tables import OPERATORS_PROJECTION

Person = Annotated[
    Name, Field(description="The person: the `actor_id` of their turns, or a further name; case does not matter.")
]


class OperatorRequest(Request):
    """Show what is known about a person: their model, the cards of agents, and the quotes as evidence.

    For OWNER, ADMIN, and tokens that may speak for the person.
    """

    user: Person
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class OperatorsRequest(Request):
    """List the operator models of a workspace, by slug."""

    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class ForgetOperatorRequest(Request):
    """Forget one key of a person, or all, in their model and in every card.

    Earlier statements of the person no longer count for this key.
    """

    user: Person
    key: FactKey | None = Field(
        default=None,
        description="role, owns, constraint, process, prefers, tooling, timezone, language or contact; all if absent.",
    )
    workspace_id: Workspace = None


class ConsentRequest(Request):
    """Record a person's consent to a model and cards, or its withdrawal.

    Without consent, nothing is learned about a person. When consent is withdrawn, model and cards are removed at once,
    and notes of agents about the person are retracted. Both count for all names of the person.
    """

    user: Person
    decision: Literal["granted", "withdrawn"] = Field(description="granted or withdrawn.")
    workspace_id: Workspace = None


class NameOperatorRequest(Request):
    """Declare a further name of a person, such as an address, or undo that.

    The person's consent counts for both names; if it was withdrawn under one name, it is withdrawn for both. Known
    facts under both names are removed; only later statements count. For OWNER, ADMIN, and tokens that speak for both
    names.
    """

    user: Person
    name: Name = Field(description="The further name.")
    remove: StrictBool = Field(default=False, description="Remove the name instead.")
    workspace_id: Workspace = None


class ReplaceSubjectKeyRequest(Request):
    """After the file subject.key was lost, use the new key although the journal names people by the old one.

    Models, cards, consents and further names of all workspaces are removed: they can no longer be assigned to people.
    People may consent again.
    """


class DeleteOperatorRequest(Request):
    """Delete a person's model, cards and consent, and retract notes of agents about the person.

    A withdrawn consent stays withdrawn. The person's messages stay in the journal; `forget` with `subject` erases them.
    """

    user: Person
    workspace_id: Workspace = None


class FactShown(Answer):
    """A fact: the person's own words, and the entry that holds them."""

    key: str
    value: str
    quote: str
    entry_id: str


class ProfileShown(Answer):
    """A model (``agent_id`` null) or an agent's card."""

    agent_id: str | None
    crew_id: str | None
    facts: tuple[FactShown, ...]
    updated_at: str


class OperatorAnswer(Answer):
    """The facts that are known about a person. ``slug`` names the documents ``users/<slug>.md`` and ``peers/<slug>.md``.

    ``consent`` is null if the person never decided; then nothing is learned of them. ``opted_out``: it was withdrawn.
    """

    slug: str
    consent: Literal["granted", "withdrawn"] | None
    opted_out: bool
    consent_at: str | None
    model: ProfileShown | None
    cards: tuple[ProfileShown, ...]
    view_seq: int


class OperatorShown(Answer):
    """A model in a list."""

    slug: str
    crew_id: str | None
    keys: tuple[str, ...]
    updated_at: str


class OperatorsAnswer(Answer):
    """The models, the newest first."""

    operators: tuple[OperatorShown, ...]
    view_seq: int


class OperatorChangedAnswer(Answer):
    """The change was recorded at ``seq``.

    ``notes_left`` counts notes of agents about the person that could not be retracted; repeat the request.
    """

    slug: str
    seq: int
    notes_retracted: int = 0
    notes_left: int = 0
    visible: Visible = True


class SubjectKeyReplacedAnswer(Answer):
    """The id of the key that is used now, and the sequence of the decision."""

    key_id: str
    seq: int
    visible: Visible = True


SHOW_OPERATOR: Final = Operation(
    name="show_operator",
    request=OperatorRequest,
    answer=OperatorAnswer,
    route="GET /v1/operator",
    effect=Effect.READS,
    views=(OPERATORS_PROJECTION,),
    command="operator show",
)
OPERATORS: Final = Operation(
    name="operators",
    request=OperatorsRequest,
    answer=OperatorsAnswer,
    route="GET /v1/operators",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(OPERATORS_PROJECTION,),
    command="operator list",
)
FORGET_OPERATOR: Final = Operation(
    name="forget_operator",
    request=ForgetOperatorRequest,
    answer=OperatorChangedAnswer,
    route="POST /v1/operator/forget",
    effect=Effect.DESTROYS,
    command="operator forget",
)
CONSENT: Final = Operation(
    name="consent",
    request=ConsentRequest,
    answer=OperatorChangedAnswer,
    route="POST /v1/operator/consent",
    effect=Effect.DESTROYS,
    command="operator consent",
)
DELETE_OPERATOR: Final = Operation(
    name="delete_operator",
    request=DeleteOperatorRequest,
    answer=OperatorChangedAnswer,
    route="POST /v1/operator/delete",
    effect=Effect.DESTROYS,
    command="operator delete",
)
NAME_OPERATOR: Final = Operation(
    name="name_operator",
    request=NameOperatorRequest,
    answer=OperatorChangedAnswer,
    route="POST /v1/operator/name",
    effect=Effect.DESTROYS,
    command="operator name",
)
REPLACE_SUBJECT_KEY: Final = Operation(
    name="replace_subject_key",
    request=ReplaceSubjectKeyRequest,
    answer=SubjectKeyReplacedAnswer,
    route="POST /v1/admin/subject-key",
    effect=Effect.DESTROYS,
    access=Access.NODE_OWNER,
    command="operator replace-key",
    decided="anywhere",
)
OPERATIONS: Final = (
    SHOW_OPERATOR,
    OPERATORS,
    FORGET_OPERATOR,
    CONSENT,
    NAME_OPERATOR,
    DELETE_OPERATOR,
    REPLACE_SUBJECT_KEY,
)
