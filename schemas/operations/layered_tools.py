"""The toolset ``layered``: memory of facts, procedures, episodes and runs, and the assembled context."""

from __future__ import annotations

from typing import Final

from .tool import Tool

LAYERED_TOOLS: Final = (
    Tool(
        "memory_write",
        "layered_write",
        "Write a fact (subject, predicate, object) or a procedure (name, content). Writing a fact that exists verifies it.",
        (
            "kind",
            "namespace",
            "subject",
            "predicate",
            "object",
            "text",
            "confidence",
            "fact_type",
            "single_valued",
            "name",
            "content",
        ),
    ),
    Tool(
        "memory_read",
        "layered_read",
        "Read a fact by its id, a procedure by its name, or the working memory of a run.",
        ("kind", "name", "version"),
    ),
    Tool(
        "memory_query",
        "layered_query",
        "Query episodes by run and type, facts by namespace and text, procedures by name.",
        ("kind", "text", "namespace", "run_id", "types", "limit"),
    ),
    Tool("fact_verify", "fact_verify", "Record that a fact was checked and holds.", ("fact_id", "confidence", "note")),
    Tool(
        "fact_request_verification",
        "fact_request_verification",
        "Ask for a verification of a fact that is in doubt.",
        ("fact_id", "note"),
    ),
    Tool(
        "fact_conflicts",
        "fact_conflicts",
        "List facts that contradict each other or are to be verified.",
        ("namespace",),
    ),
    Tool(
        "context_assemble",
        "context_assemble",
        "Assemble the memories that are relevant to a prompt, within a budget of tokens.",
        ("prompt", "query", "run_id", "namespace", "budget_tokens"),
    ),
)
