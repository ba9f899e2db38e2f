"""Two agents and their lead share a crew's memory. Run `crew-journal up` first.

Each has a token of its own. An agent writes its own memory and reads its crew's; the lead writes the crew's.
"""

from crew_journal import CrewJournal, NotAllowed

with CrewJournal() as owner:
    owner.register_crew("press", name="Press office")
    tokens = {}
    for agent, role in (("writer", "AGENT"), ("checker", "AGENT"), ("editor", "LEAD")):
        owner.register_agent(agent, crew_id="press", role="lead" if role == "LEAD" else "agent", memory_enabled=True)
        made = owner.create_token(role, workspace_id="default", crew_id="press", agent_id=agent)
        tokens[agent] = made.token

with (
    CrewJournal(token=tokens["writer"]) as writer,
    CrewJournal(token=tokens["checker"]) as checker,
    CrewJournal(token=tokens["editor"]) as editor,
):
    writer.document_write("AGENT", "replace", "- I write about harbours")
    try:
        writer.document_write("CREW", "replace", "- Anything goes")
    except NotAllowed as error:
        print("writer:", error.message)
    rule = editor.document_write("CREW", "replace", "- Numbers are checked twice")
    for name, client in (("writer", writer), ("checker", checker)):
        block = client.memory_block(min_seq=rule.seq).text
        print(f"{name}: knows the rule: {'checked twice' in block}, about harbours: {'harbours' in block}")
