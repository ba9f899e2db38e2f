"""Python client, sync and async; needs only schemas and httpx."""
