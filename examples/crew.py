"""Two agents and their lead share a crew's memory. Run `crew-journal up` first.

Each has a token of its own: an agent reads and writes its own memory and reads its crew's, the lead writes the crew's.
"""

import os

from crew_journal import CrewJournal, NotAllowed

with CrewJournal() as owner:
    owner.register_crew("press", name="Press office")
    for agent in ("writer", "checker", "editor"):
        owner.register_agent(agent, crew_id="press", memory_enabled=True)
    roles = {"writer": "agent", "checker": "agent", "editor": "lead"}
    tokens = {
        agent: owner.create_token(role=role, workspace_id="default", agent_id=agent, crew_id="press").token
        for agent, role in roles.items()
    }
    url = os.environ.get("CREW_JOURNAL_URL") or owner.status()["http"]
