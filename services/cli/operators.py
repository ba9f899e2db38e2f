"""``operator``: models of people, and how people see them; the commands are made from the operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .commands import CommandGroup
from .output import listing, print_table

operators = CommandGroup(help="What people said of themselves: models and peer cards.")


_STATES: Final = {
    None: "the person has not consented: nothing is learned of them (`crew-journal operator consent`)",
    "granted": "nothing is known of this person",
    "withdrawn": "the person opted out",
}


def print_operator(answer: Mapping[str, Any]) -> None:
    """A table of facts: where they are kept, and the words they rest on."""
    profiles = [profile for profile in (answer["model"], *answer["cards"]) if profile is not None]
    rows = [
        [profile["agent_id"] or "all agents", fact["key"], fact["value"], fact["quote"], fact["entry_id"]]
        for profile in profiles
        for fact in profile["facts"]
    ]
    state = _STATES[answer["consent"]]
    print_table(("for", "key", "value", "quote", "entry"), rows, empty=state)


print_operators = listing(
    "operators",
    ("slug", "crew", "updated", "keys"),
    lambda operator: (operator["slug"], operator["crew_id"], operator["updated_at"], ", ".join(operator["keys"])),
    empty="there are no operator models: reactors make them of what people say in conversations (docs/operator-models.md)",
)
