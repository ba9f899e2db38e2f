"""An agent's loop: recall, prompt, act, append, used. Run `crew-journal up` first."""

from crew_journal import CrewJournal

WHO = {"agent_id": "driver", "crew_id": "depot"}


def scripted_model(prompt: str) -> str:
    """Stands for a language model: it answers from its prompt only."""
    return "I take the blue van." if "blue van" in prompt else "Which van do you mean?"


def turn(journal: CrewJournal, question: str, session: str) -> str:
    """One turn of the agent; the memory that bears on the question is in the prompt."""
    memory = journal.render(question, agent_id=WHO["agent_id"], crew_id=WHO["crew_id"])
    answer = scripted_model(f"{memory.text}\n\nUser: {question}")
    said = {"entry_type": "chat.user_message", "actor_type": "user", "summary": question}
    done = {"entry_type": "chat.agent_response", "actor_type": "agent", "summary": answer}
    journal.append_batch({**WHO, "trace_id": session, **entry} for entry in (said, done))
    if memory.receipt and memory.hits:
        journal.used(memory.receipt)  # what is used keeps its importance longer
    return answer


if __name__ == "__main__":
    with CrewJournal() as client:
        client.register_agent("driver", crew_id="depot")
        print(turn(client, "Which van goes to Ulm?", "before"))
        known = client.remember("The blue van goes to Ulm", agent_id=WHO["agent_id"], crew_id=WHO["crew_id"])
        client.count(min_seq=known.seq)  # waits until recall finds it
        print(turn(client, "Which van goes to Ulm?", "after"))
