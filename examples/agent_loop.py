"""An agent's loop: recall, prompt, act, append, used. Run `crew-journal up` first."""

from crew_journal import CrewJournal


def scripted_model(prompt: str) -> str:
    """Stands for a language model: it answers from its prompt only."""
    return "I take the blue van." if "blue van" in prompt else "Which van do you mean?"


def turn(journal: CrewJournal, question: str, session: str) -> str:
    """One turn: the answer, with the memory that bears on the question in its prompt."""
    who = {"agent_id": "driver", "crew_id": "depot"}
    memory = journal.render(question, mode="inject", **who)
    answer = scripted_model(f"{memory.text}\n\nUser: {question}")
    entry = {**who, "trace_id": session}
    journal.append_batch(
        [
            {**entry, "entry_type": "chat.user_message", "actor_type": "user", "summary": question},
            {**entry, "entry_type": "chat.agent_response", "actor_type": "agent", "summary": answer},
        ]
    )
    if memory.receipt and memory.hits:
        journal.used(memory.receipt)  # what is used keeps its importance longer
    return answer


if __name__ == "__main__":
    with CrewJournal() as client:
        print(turn(client, "Which van goes to Ulm?", "before"))
        known = client.remember("The blue van goes to Ulm", agent_id="driver", crew_id="depot")
        client.count(min_seq=known.seq)  # waits until recall finds it
        print(turn(client, "Which van goes to Ulm?", "after"))
