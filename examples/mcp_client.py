"""The memory as tools, called by the official client of the Model Context Protocol. `crew-journal mcp` starts a node."""

import asyncio
import os

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

COMMAND = StdioServerParameters(command="crew-journal", args=["mcp", "--agent", "ada"], env=dict(os.environ))


async def main() -> None:
    """List the tools, remember a fact and recall it."""
    async with Client(COMMAND) as client:
        print("tools:", ", ".join(sorted(tool.name for tool in (await client.list_tools()).tools)))
        await client.call_tool("remember", {"text": "Zoë prefers tea"})
        answer = await client.call_tool("recall", {"query": "What does Zoë prefer?"})
        assert answer.structured_content is not None
        print("recalled:", *(hit["summary"] for hit in answer.structured_content["hits"]))


if __name__ == "__main__":
    asyncio.run(main())
